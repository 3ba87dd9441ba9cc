"""Readers of Hudi tables that are not of the release that Sluice writes with."""
