"""How a Spark job is started: its settings and its command line."""
