"""Entry point of a participant: writes one range of Kafka partitions under the interval's Hudi instant."""

from __future__ import annotations

import argparse
import sys

from sluice.errors import SluiceError
from sluice.kafka.config import KafkaSettings
from sluice.logs import leave_the_time_to_the_parent, log
from sluice.participant.participant import Assignment
from sluice.participant.spark_job import participant


def main() -> int:
    """Run one participant; the exit status is 0 when its WRITE-STATUS is in the control topic."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True, help="the table's path, which keys its messages")
    parser.add_argument("--control-topic", required=True)
    parser.add_argument("--control-offset", required=True, type=int, help="offset of START-COMMIT")
    parser.add_argument("--range", required=True, type=int, help="number of the range in the plan, from 0")
    parser.add_argument("--start-digest", help="digest of the START-COMMIT at that offset")
    arguments = parser.parse_args()
    leave_the_time_to_the_parent()
    assignment = Assignment(
        arguments.table, arguments.control_topic, arguments.control_offset, arguments.range, arguments.start_digest
    )
    try:
        source, control = KafkaSettings.from_environment("source"), KafkaSettings.from_environment("control")
        participant(assignment, source, control).run()
    except SluiceError as error:
        log.error(str(error), recovery=error.recovery)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
