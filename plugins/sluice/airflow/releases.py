"""What differs between the releases of Airflow that Sluice runs on; docs/production.md lists them.

Airflow 3.2 lacks two of 3.3's means: retry policies, in whose place an error that isn't to be retried is raised as
AirflowFailException, and state stores of tasks and assets, in whose place `state.py` uses Airflow's variables.
"""

from __future__ import annotations

from typing import Any

import airflow.sdk
from airflow.sdk.observability import stats as _stats

HAS_RETRY_POLICIES = hasattr(airflow.sdk, "RetryPolicy")
"""Whether a policy can decide by a task's error whether it is retried."""

stats: Any = _stats if hasattr(_stats, "incr") else _stats.Stats
"""Airflow's metrics, with `incr`, `gauge` and `timing`: functions of a module, before Airflow 3.3 of a class."""
