"""How a record becomes a row: the pipeline file's settings, and the settings that an interval pins. Pure."""
