"""What keeps a fork of a process from hanging on the Kafka clients that it inherits."""

from __future__ import annotations

import gc
import os


def keep_clients_out_of_forks() -> None:
    """Have a fork leave alone whatever its parent left to the garbage collector. Once for a process.

    librdkafka ends a client by waiting for its threads, and a fork has none of its parent's: it would wait for ever,
    busily, in C, where no signal handler of Python runs. The collector may do that at any allocation. Airflow forks a
    task that has succeeded to tell OpenLineage of it; that event was lost, and the fork outlived the task.
    """
    os.register_at_fork(after_in_child=gc.freeze)
