"""SQLite: its SQL and types as a target, its tables and horizons as a source, and its client."""
