"""The page in Airflow's navigation: pipelines, their transactions and offsets, read from the control topic.

It only reads: the control topic, tables' timelines, the log ends of the topics, and what Airflow's database
says of the DAGs and runs. All that it keeps is a copy in memory, which a restart reads anew.
"""
