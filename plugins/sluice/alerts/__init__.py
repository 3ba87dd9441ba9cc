"""Who has to be told what, and in which words: pure functions of what a run came to and of what came before it."""

from sluice.alerts.decide import after, decide
from sluice.alerts.report import Alert, Failure, History, Links, Outcome, Report

__all__ = ["Alert", "Failure", "History", "Links", "Outcome", "Report", "after", "decide"]
