"""Airflow's side: a pipeline as a DAG, each of whose runs is one transaction interval.

Thin on purpose: the logic of an interval is in `sluice.coordinator` and `sluice.participant`, which don't know Airflow.
"""
