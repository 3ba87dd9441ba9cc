"""The transaction interval as pure values and rules: no Airflow, Spark, Kafka or Hudi is imported here."""
