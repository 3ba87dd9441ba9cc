"""The coordinator's interfaces to a source, a sink and a control log."""
