"""From records to rows in Spark: converters, changes, transforms and bad records, as expressions."""
