"""Sluice against its peers, as ratios within one run. See README.md."""
