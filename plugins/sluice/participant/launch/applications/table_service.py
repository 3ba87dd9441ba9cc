"""Entry point of a table service that takes Spark: compaction or clustering, as the table's timeline has it planned."""

from __future__ import annotations

import argparse
import sys

from sluice.control.topic import ControlTopic
from sluice.errors import SluiceError
from sluice.kafka.config import KafkaSettings
from sluice.logs import leave_the_time_to_the_parent, log
from sluice.participant.service import ServiceAssignment, ServiceJob, in_spark


def main() -> int:
    """Run the service; the exit status is 0 when its ACK-COMMIT is in the control topic."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True, help="the table's path, which keys its messages")
    parser.add_argument("--control-topic", required=True)
    parser.add_argument("--control-offset", required=True, type=int, help="offset of START-COMMIT")
    parser.add_argument("--start-digest", help="digest of the START-COMMIT at that offset")
    arguments = parser.parse_args()
    leave_the_time_to_the_parent()
    assignment = ServiceAssignment(
        arguments.table, arguments.control_topic, arguments.control_offset, arguments.start_digest
    )
    try:
        control = ControlTopic(KafkaSettings.from_environment("control"), assignment.control_topic)
        ServiceJob(assignment, control, in_spark).run()
    except SluiceError as error:
        log.error(str(error), recovery=error.recovery)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
