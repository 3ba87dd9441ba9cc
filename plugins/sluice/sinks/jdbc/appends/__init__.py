"""The sink of a database that only its JDBC driver knows: it appends rows to one table that is there, exactly once."""
