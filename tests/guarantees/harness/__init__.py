"""What the tests of the guarantees share: one interval's steps, crashes, and readers of both kinds."""

from sluice.coordinator import Run

from .drivers import MEMORY, Drivers, Job, Zombie
from .flow import Flow
from .kafka import Sent
from .processes import (
    CLUSTER,
    MASTER,
    Pause,
    Step,
    environment,
    finish,
    kafka_settings,
    once_the_lease_is_free,
    other_clock,
    wait_for,
)
from .readers import DDL, SharedJvm

__all__ = [
    "CLUSTER",
    "DDL",
    "MASTER",
    "MEMORY",
    "Drivers",
    "Flow",
    "Job",
    "Pause",
    "Run",
    "Sent",
    "SharedJvm",
    "Step",
    "Zombie",
    "environment",
    "finish",
    "kafka_settings",
    "once_the_lease_is_free",
    "other_clock",
    "wait_for",
]
