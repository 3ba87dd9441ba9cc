"""Files of a folder as a source: a log in Kafka numbers them, and an offset is a file's number and a line."""
