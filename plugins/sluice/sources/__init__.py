"""Where records come from: a folder for each kind of source."""
