"""Any database with a JDBC driver, as a source: what the JDBC standard and the driver say of it."""
