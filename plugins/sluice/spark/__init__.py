"""Names that pipelines of earlier releases import."""
