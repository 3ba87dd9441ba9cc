"""The alerts of a run, their recipients and their texts: pure functions of the run's outcome and of earlier runs."""

from sluice.airflow.alerts.decide import after, decide
from sluice.airflow.alerts.report import Alert, Failure, History, Links, Outcome, Report

__all__ = ["Alert", "Failure", "History", "Links", "Outcome", "Report", "after", "decide"]
