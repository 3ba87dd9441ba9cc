"""Tables of a relational database as a source: windows over a column, up to where no transaction still writes."""
