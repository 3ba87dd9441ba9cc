"""What the coordinator asks of a source, a sink and a control log. Interfaces alone."""
