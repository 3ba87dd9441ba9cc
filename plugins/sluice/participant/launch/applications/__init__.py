"""What `spark-submit` starts, a file for each application: the shims of `spark_jobs/` are the same by another path."""
