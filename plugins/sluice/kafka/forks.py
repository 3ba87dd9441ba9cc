"""What keeps a fork of a process from hanging on the Kafka clients that it inherits."""

from __future__ import annotations

import gc
import os


def keep_clients_out_of_forks() -> None:
    """Keep a fork from collecting its parent's garbage. Once for a process.

    librdkafka ends a client by joining its threads, and a fork has none of its parent's: it would spin for ever, in C,
    where no signal handler of Python runs. The collector may do that at any allocation. Airflow forks a successful task
    to send its OpenLineage event; that event was lost, and the fork outlived the task.
    """
    os.register_at_fork(after_in_child=gc.freeze)
