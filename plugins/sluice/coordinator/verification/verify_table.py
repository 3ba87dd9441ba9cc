"""Compares committed offsets with the table: verify_table.py TASK ANSWER, files that `sluice verify` makes."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from sluice.connectors.data import reader_of, rows_of
from sluice.coordinator.verification.compare import compare
from sluice.coordinator.verification.verify import Verification, as_json
from sluice.errors import SluiceError
from sluice.kafka.config import KafkaSettings, connections_of_environment
from sluice.participant.session import spark_session
from sluice.participant.spark_job import pinned_reader, readers_of
from sluice.protocol.mapping import ClusterAddress
from sluice.records.plan import RecordPlan


def main() -> int:
    """Run the comparison, and write its result."""
    task, answer = map(Path, sys.argv[1:])
    spark = spark_session("sluice verify")
    try:
        asked = json.loads(task.read_text())
        source = KafkaSettings.from_environment("source")
        clusters = {name: ClusterAddress.model_validate(said) for name, said in asked["clusters"].items()}
        reader = partial(reader_of(asked["source"]), spark)
        records = RecordPlan.model_validate(asked["records"])
        reader = partial(pinned_reader, reader, records.value)
        readers = readers_of(reader, source, connections_of_environment(source), clusters)
        found: Verification | SluiceError = compare(spark, readers, rows_of(asked["sink"]), asked)
    except SluiceError as error:  # it says by itself what to do
        found = error
    finally:
        spark.stop()
    answer.write_text(as_json(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
