"""Airflow's side: a pipeline as a DAG, each of whose runs is one transaction interval.

Thin on purpose: what an interval does stands in `sluice.coordinator` and `sluice.participant`, which know nothing of
Airflow.
"""
