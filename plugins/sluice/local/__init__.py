"""The embedded runtime: Java, jars, a Kafka broker and Airflow inside the project's folder.

Nothing here is needed in production. It exists so that a machine with Python 3.11 and make, and nothing else,
can run the demo and every test.
"""
