"""Hostile inputs for every parser and every route."""
