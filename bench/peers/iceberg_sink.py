"""Iceberg's sink for Kafka Connect, in a standalone worker, until so many rows are committed, or until it is killed.

iceberg_sink.py --jars J --bootstrap B --topic T --home H --path P --every SECONDS [--records N]

Its table is partitioned by exchange, as the others' are; data files lie in P, metadata in H. The topic of its control
messages is made here, since a broker may not make topics by itself.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

POLL = 0.1
JSON = "org.apache.kafka.connect.json.JsonConverter"
# The heap and the collector that Kafka's own script starts Connect with.
JVM = (
    "-Xms256m",
    "-Xmx2g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
HADOOP = ("hadoop-client-api-*", "hadoop-client-runtime-*", "commons-logging-*")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("--jars", "--bootstrap", "--topic", "--home", "--path"):
        parser.add_argument(name, required=True)
    parser.add_argument("--every", type=float, required=True, help="seconds between commits")
    parser.add_argument("--records", type=int, help="end when so many rows are committed")
    return parser.parse_args()


def settings(given: argparse.Namespace, home: Path) -> list[str]:
    """The files of the worker's and of the connector's properties."""
    control = f"{given.topic}-{home.name}-iceberg"
    admin = AdminClient({"bootstrap.servers": given.bootstrap})
    admin.create_topics([NewTopic(control, 1)])[control].result()
    worker = {
        "bootstrap.servers": given.bootstrap,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": home / "offsets",
        "listeners": "http://127.0.0.1:0",
        "plugin.discovery": "only_scan",
        "consumer.auto.offset.reset": "earliest",
        # The sink answers its coordinator when Connect calls it: if no record comes, only when this time is over.
        "offset.flush.interval.ms": 500,
    }
    connector = {
        "name": control,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": 2,
        "topics": given.topic,
        "iceberg.catalog.type": "hadoop",
        "iceberg.catalog.warehouse": urllib.parse.urljoin("file:", urllib.parse.quote(str(home / "warehouse"))),
        "iceberg.tables": "bench.events",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.default-partition-by": "exchange",
        "iceberg.tables.auto-create-props.write.data.path": f"file:{given.path}",
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": int(given.every * 1000),
    }
    files = []
    for name, properties in (("worker", worker), ("connector", connector)):
        file = home / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        files.append(str(file))
    return files


def committed(home: Path) -> int:
    """Rows of the table's current snapshot, by its summary."""
    folder = home / "warehouse" / "bench" / "events" / "metadata"
    try:
        version = (folder / "version-hint.text").read_text().strip()
        metadata = json.loads((folder / f"v{version}.metadata.json").read_text())
    except FileNotFoundError:
        return 0
    current = metadata.get("current-snapshot-id")
    summaries = {s["snapshot-id"]: s["summary"] for s in metadata.get("snapshots", [])}
    return int(summaries[current]["total-records"]) if current in summaries else 0


def main() -> int:
    given = options()
    home = Path(given.home)
    hadoop = [jar for name in HADOOP for jar in (Path(os.environ["SPARK_HOME"]) / "jars").glob(f"{name}.jar")]
    class_path = os.pathsep.join([str(Path(given.jars) / "*"), *map(str, hadoop)])
    command = [f"{os.environ['JAVA_HOME']}/bin/java", *JVM, "-cp", class_path]
    command += ["org.apache.kafka.connect.cli.ConnectStandalone", *settings(given, home)]
    worker = subprocess.Popen(command, stdout=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: worker.terminate())
    while worker.poll() is None:
        if given.records is not None and committed(home) >= given.records:
            worker.terminate()
            worker.wait()
            return 0
        time.sleep(POLL)
    return 1


if __name__ == "__main__":
    sys.exit(main())
