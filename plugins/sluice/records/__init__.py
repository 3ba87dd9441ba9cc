"""How a record becomes a row: what the pipeline file says of it, and what an interval pins of that. Pure."""
