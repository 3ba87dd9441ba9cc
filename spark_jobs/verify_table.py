"""Compares committed offsets with the table: verify_table.py TASK ANSWER, files that `sluice verify` makes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sluice.kafka.config import KafkaSettings
from sluice.participant.session import spark_session
from sluice.sources.kafka.driver_settings import java_settings
from sluice.verification.compare import compare
from sluice.verification.verify import as_json


def main() -> int:
    """Run the comparison; the answer says what it found, whatever that is."""
    task, answer = map(Path, sys.argv[1:])
    spark = spark_session("sluice verify")
    try:
        found = compare(
            spark, java_settings(spark, KafkaSettings.from_environment("source")), json.loads(task.read_text())
        )
    finally:
        spark.stop()
    answer.write_text(as_json(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
