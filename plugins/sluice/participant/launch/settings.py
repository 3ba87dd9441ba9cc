"""Spark settings of the write jobs: for Hudi and a fast start, overridden by the pipeline's own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sluice import runtime

ARCHIVE = "participant"
_GIVEN = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.ui.enabled": "false",
    # Settings redacted in its page of settings, event logs and the Kafka source's log lines: more than by default.
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|jaas|credential|user[.]info|"
    "(access|api|private|account|shared|encryption)[._-]?key|keystore[.]key",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",  # one scan, one write: nothing to adapt, and the plan stays readable
    # Looking for a join's key in what it was computed from, these two write its expressions out in full, each as often
    # as others refer to it: a join of Debezium's JSON took all memory. No table that Sluice joins is large enough.
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Dates before 1582 and times before 1900 stay as they are, read or written. By default a single one fails the job.
    **{
        f"spark.sql.{kind}RebaseModeIn{way}": "CORRECTED"
        for kind in ("parquet.datetime", "parquet.int96", "avro.datetime")
        for way in ("Read", "Write")
    },
    # Otherwise a date that Spark before 3.0 may have read differently, such as 2023-02-30, fails the job.
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",  # 2 % larger than level 3, for less CPU than snappy
    "spark.task.maxFailures": "1",  # a second try is a new attempt with its own WRITE-STATUS, by Airflow
}
# At its own thresholds the optimizing compiler takes a quarter of the CPU time of a job of some seconds. With these it
# compiles code that stays hot over the whole job, and leaves the rest to the quick compiler; see docs/performance.md.
_COMPILE_LATER = {
    "Tier4InvocationThreshold": 50_000,
    "Tier4MinInvocationThreshold": 20_000,
    "Tier4CompileThreshold": 150_000,
    "Tier4BackEdgeThreshold": 400_000,
}
# Memory for a length given in an Avro record is allocated before reading, even if the record is broken. Records within
# Kafka's default limit don't come near these; without them a few bytes could take all memory.
# https://avro.apache.org/docs/1.11.4/security/
_AVRO_LIMITS = [
    f"-Dorg.apache.avro.limits.string.maxLength={64 << 20}",
    f"-Dorg.apache.avro.limits.bytes.maxLength={64 << 20}",
    f"-Dorg.apache.avro.limits.collectionItems.maxLength={16 << 20}",
]
_DRIVER_OPTIONS = [
    "-XX:+UseParallelGC",
    "-XX:-UsePerfData",
    *(f"-XX:{name}={value}" for name, value in _COMPILE_LATER.items()),
]


_LOOPBACK = "127.0.0.1"


def _channels(master: str, private: Mapping[str, str]) -> dict[str, str]:
    """Settings that let only processes with the application's secret talk to driver and executors, encrypted.

    Spark creates a secret for each application if driver and executors share a launcher. On a standalone cluster
    master and workers must know it beforehand, so there the Spark connection has to set it.
    """
    own_secret = "spark.authenticate.secret" in private
    if not own_secret and not runtime.is_local(master) and not master.startswith(("yarn", "k8s://")):
        return {}
    secured = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    here = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return {**secured, **(here if runtime.is_local(master) else {})}


def driver_address(master: str) -> dict[str, str]:
    """Environment of a driver whose executors are in its own JVM: it binds the UI, too, to the loopback address."""
    return {"SPARK_LOCAL_IP": _LOOPBACK} if runtime.is_local(master) else {}


def spark_conf(master: str, user: Mapping[str, str], private: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings of one write job.

    Args:
        master: Spark's master. The driver, which is always here, has the jars on its own class path, where a
            class-data-sharing archive can hold them; to a cluster's executors they travel with the job.
        user: the pipeline's `write.conf`; it wins, but for Java options, which are joined.
        private: the Spark connection's secrets, which the driver sets by itself; none of them is in the result.
    """
    jars = [str(jar) for jar in runtime.jars("spark")]
    here = [str(jar) for jar in runtime.local_jars()] if runtime.is_local(master) else []
    conf = {
        **_GIVEN,
        **_channels(master, private or {}),
        "spark.driver.extraClassPath": os.pathsep.join([*jars, *here]),
    }
    if here:
        conf |= {f"spark.hadoop.{name}": value for name, value in runtime.local_disk().items()}
    options = [*_DRIVER_OPTIONS, *_AVRO_LIMITS, *runtime.QUIET, *runtime.archive_options(ARCHIVE)]
    if not runtime.is_local(master):
        conf["spark.jars"] = ",".join(jars)
    conf |= user
    options += user.get("spark.driver.extraJavaOptions", "").split()
    conf["spark.driver.extraJavaOptions"] = " ".join(options)
    if not runtime.is_local(master):
        theirs = [*_AVRO_LIMITS, *user.get("spark.executor.extraJavaOptions", "").split()]
        conf["spark.executor.extraJavaOptions"] = " ".join(theirs)
    return conf
