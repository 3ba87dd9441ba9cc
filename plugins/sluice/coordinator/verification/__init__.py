"""`sluice verify`: compares the rows of a table with the records of its committed offsets."""
