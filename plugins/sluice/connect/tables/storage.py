"""Confluent's sinks of files: HDFS 2 and 3, and S3, which share partitioners and formats.

https://docs.confluent.io/kafka-connectors/hdfs/current/configuration_options.html,
https://docs.confluent.io/kafka-connectors/s3-sink/current/configuration_options.html
"""

from __future__ import annotations

import re
from typing import Any, Final

from sluice.connect.draft import HIDDEN, Draft, RefusedError, UnfitError, address
from sluice.connect.rules import Ignored, Maps, Table, Unsupported, duration, names, one_of, whole_number
from sluice.sinks.files.options import Files
from sluice.untrusted import whole

_FORMATS: Final = {"AvroFormat": "avro", "ParquetFormat": "parquet", "JsonFormat": "json"}
_PARTITIONERS: Final = {
    "DefaultPartitioner": "default",
    "FieldPartitioner": "field",
    "TimeBasedPartitioner": "time",
    "DailyPartitioner": "daily",
    "HourlyPartitioner": "hourly",
}
_EXTRACTORS: Final = {"wallclock": "wallclock", "record": "record", "recordfield": "record_field"}
_CODECS: Final = {"null": "none", "uncompressed": "none"}
_OBJECTS = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")
_NAMES = "names of files are those of docs/file-sink.md"
_MEMORY = "an interval is written by Spark, with its own memory settings"
_HADOOP = "Hadoop's settings are those of HADOOP_CONF_DIR, and of spark.hadoop.* in write.conf"
_HIVE = Unsupported(
    "new folders aren't registered in Hive", "add them by MSCK REPAIR TABLE, or leave it to your own job"
)
_KERBEROS = Unsupported(
    _HADOOP, "log in by spark.kerberos.principal and spark.kerberos.keytab in write.conf, and kinit on the workers"
)

_NO_VALUE = "a record without a value is a bad one: set aside with errors.tolerance: all, else it stops its interval"
_SHARED: Final[Table] = {
    "flush.size": Maps(
        "sink.max_rows_per_file",
        whole_number,
        "cut by offsets, and files are closed with each interval, however few rows there are",
    ),
    "storage.class": Ignored("the path says where files are"),
    "schema.cache.size": Ignored("schemas are pinned in START-COMMIT"),
    "retry.backoff.ms": Maps("retry_delay", duration, "it doubles from one to the next"),
    "shutdown.timeout.ms": Ignored("an interval is committed or not, however it ends"),
    "filename.offset.zero.pad.width": Unsupported(_NAMES, "", ("10",)),
    "file.delim": Unsupported(_NAMES, "", ("+",)),
    "directory.delim": Unsupported("folders are divided by /", "", ("/",)),
    "enhanced.avro.schema.support": Ignored("names of enumerations are texts"),
    "connect.meta.data": Ignored("names and notes of Connect's schemas don't reach a file"),
    "allow.optional.map.keys": Ignored("maps have texts as keys"),
    "max.open.files.per.partition": Ignored(_MEMORY),
    "partitioner.max.open.files": Ignored(_MEMORY),
    "avro.codec": Ignored("files are of another format"),
    "parquet.codec": Ignored("files are of another format"),
}
HDFS: Final[Table] = {
    **_SHARED,
    "logs.dir": Ignored("the log of commits is in the folder _sluice of the path"),
    "hadoop.conf.dir": Unsupported(_HADOOP, "set HADOOP_CONF_DIR where Airflow's workers and Spark run"),
    "hadoop.home": Ignored("Hadoop's client is among Sluice's jars"),
    "hdfs.authentication.kerberos": Unsupported(_KERBEROS.why, _KERBEROS.next_step, ("false",)),
    "connect.hdfs.principal": _KERBEROS,
    "connect.hdfs.keytab": _KERBEROS,
    "hdfs.namenode.principal": _KERBEROS,
    "kerberos.ticket.renew.period.ms": Ignored("write jobs are shorter than a ticket's life, or renew it by Spark"),
    "hive.integration": Unsupported(_HIVE.why, _HIVE.next_step, ("false",)),
    "hive.*": Ignored("there is no integration with Hive"),
}
S3: Final[Table] = {
    **_SHARED,
    "s3.region": Unsupported(
        "the S3 client's region is Hadoop's setting", "set spark.hadoop.fs.s3a.endpoint.region in write.conf"
    ),
    "s3.part.size": Ignored(_MEMORY),
    "s3.part.retries": Ignored("a task that failed is tried again"),
    "s3.retry.backoff.ms": Ignored("a task that failed is tried again"),
    "s3.compression.level": Ignored("the codec's own level is taken"),
    "s3.elastic.buffer.*": Ignored(_MEMORY),
    "s3.http.send.expect.continue": Ignored("the S3 client is Hadoop's"),
    "s3.path.style.access.enabled": Unsupported(
        "the S3 client is Hadoop's", "set spark.hadoop.fs.s3a.path.style.access in write.conf"
    ),
    "s3.schema.partition.affix.type": Unsupported("folders are called by their topics", "", ("none",)),
    "s3.object.tagging": Unsupported("objects get no tags", "", ("false",)),
    "s3.object.tagging.*": Ignored("objects get no tags"),
    "s3.acl.canned": Unsupported(
        "objects get the bucket's own rights", "set spark.hadoop.fs.s3a.acl.default in write.conf"
    ),
    "s3.sse.customer.key": Unsupported(
        "encryption is Hadoop's setting, and its key a secret", "put it into the Spark connection's extra field"
    ),
    "s3.ssea.name": Unsupported(
        "encryption is Hadoop's setting", "set spark.hadoop.fs.s3a.encryption.algorithm in write.conf"
    ),
    "s3.sse.kms.key.id": Unsupported(
        "encryption is Hadoop's setting", "set spark.hadoop.fs.s3a.encryption.key in write.conf"
    ),
    "s3.wan.mode": Unsupported(
        "there is no accelerated endpoint", "set spark.hadoop.fs.s3a.endpoint in write.conf", ("false",)
    ),
    "s3.credentials.provider.*": Unsupported(
        "credentials are Hadoop's settings", "set spark.hadoop.fs.s3a.aws.credentials.provider"
    ),
    "s3.proxy.*": Unsupported("the S3 client is Hadoop's", "set spark.hadoop.fs.s3a.proxy.host and its like"),
    "aws.*": Unsupported(
        "credentials are Hadoop's settings",
        'put them into the Spark connection\'s extra field, as {"conf": {"spark.hadoop.fs.s3a.…": "…"}}',
    ),
    "store.kafka.keys": Unsupported(
        "a record's key becomes a column, not a separate file", "say so in source's `key`", ("false",)
    ),
    "store.kafka.headers": Unsupported(
        "headers become a column, not a separate file", "say so in source's `columns`", ("false",)
    ),
    "keys.format.class": Ignored("keys have no files"),
    "headers.format.class": Ignored("headers have no files"),
    "behavior.on.null.values": Unsupported(_NO_VALUE, "", ("fail",)),
    "format.bytearray.*": Ignored("files are of another format"),
    "json.decimal.format": Ignored("decimals are numbers in JSON"),
    "tombstone.*": Unsupported(_NO_VALUE),
}


def hdfs(draft: Draft) -> None:
    """HDFS: the place, and what both share."""
    key = "store.url" if draft.has("store.url") else "hdfs.url"
    _place(draft, key, draft.get(key))
    draft.harmless("hdfs.url", "store.url goes before it")
    _files(draft)
    _codec(draft, f"{draft.value_of('sink.format')}.codec")
    _hive(draft)


def _hive(draft: Draft) -> None:
    """The metastore, for formats whose files Hive reads by the catalog's columns."""
    uris, topics = draft.get("hive.metastore.uris"), draft.list("topics")
    if not draft.flag("hive.integration") or not uris or draft.value_of("sink.format") not in ("avro", "parquet"):
        return
    hive = {"uris": uris, "database": draft.get("hive.database", "default")}
    for key in ("hive.metastore.uris", "hive.database"):
        draft.honoured(key, f"in {draft.put('catalog_sync.hive', hive)}")
    table = draft.get("hive.table.name", "${topic}")
    if "${topic}" not in table or len(topics) == 1:
        named = table.replace("${topic}", topics[0] if topics else "")
        hive["table"] = re.sub(r"[.-]", "_", named)  # as the connector's own tableNameConverter has it
        draft.honoured("hive.table.name", f"catalog_sync.hive.table: {hive['table']}")
    draft.lost("hive.table.name", "the topics are partitions of one table", "name it in catalog_sync.hive.table")
    draft.differs(
        "hive.integration",
        "catalog_sync.hive, as one table whose partitions are topic and folders, all STRING",
        "give it another name than the connector's table, whose files aren't registered (docs/file-sink.md)",
    )
    for key in ("hive.conf.dir", "hive.home"):
        draft.harmless(key, "the metastore's address is in the file, and its client among the jars")


def s3(draft: Draft) -> None:
    """S3: the bucket, and what both share."""
    bucket = draft.get("s3.bucket.name")
    _place(draft, "s3.bucket.name", f"s3a://{bucket}" if bucket else "")
    _place(draft, "store.url", "")
    _files(draft)
    if draft.value_of("sink.format") == "json":
        _codec(draft, "s3.compression.type")
    else:
        draft.harmless("s3.compression.type", "it is for JSON")
        _codec(draft, f"{draft.value_of('sink.format')}.codec")


def _place(draft: Draft, key: str, url: str) -> None:
    """Each pipeline has its own folder: below the connector's, or below one that the caller names."""
    if draft.value_of("sink.path"):
        if draft.has(key):
            draft.lost(key, "the endpoint of S3 is Hadoop's setting", "set spark.hadoop.fs.s3a.endpoint in write.conf")
        return
    base = (draft.folder or url).rstrip("/")
    parts = address(base, key)
    if not base:
        raise RefusedError("It doesn't say where files go.", f"add {key}, or name a folder by --path.", key)
    if parts.username or parts.password or "?" in base:
        raise RefusedError(
            "The address has a login in it.", f"write it without, and log in by Hadoop's settings ({HIDDEN}).", key
        )
    if parts.scheme in _OBJECTS and not _takes(base):
        raise RefusedError(
            f"Files can't be committed on {parts.scheme}:// here.",
            "name a folder on HDFS or a disk by --path, or write a pipeline file with a Hudi table, which can be"
            " there.",
            key,
        )
    said = draft.put("sink.path", f"{base}/{draft.data['name']}")
    given = draft.get("topics.dir", "topics").strip("/")
    below = given or "topics"
    place = f"{said}; readers look below {base}/{draft.data['name']}/{below}, since each pipeline has its own folder"
    step = "inform the readers; the connector's own files stay where they are"
    if draft.has("hdfs.url") or draft.has("store.url"):
        step += f". To continue in its folder, set path: {base} and takeover: confluent (docs/file-sink.md)"
    draft.differs(key, place, step)
    draft.put("sink.topics_dir", below)
    if not given:
        draft.differs("topics.dir", f"topics_dir: {below}, since topics have a folder of theirs here", step)
    draft.honoured("topics.dir", f"{'.'.join(draft.place('sink.topics_dir'))}: {below}")


def _takes(path: str) -> bool:
    """Whether the section of files takes paths of that file system; support of object stores may grow."""
    try:
        Files.model_validate({"path": f"{path}/probe", "layout": "connect", "schema": "probe STRING"})
    except ValueError:
        return False
    return True


def _files(draft: Draft) -> None:
    draft.put("sink.layout", "connect")
    _format(draft)
    _partitioner(draft)
    schedules = {key: draft.get(key) for key in ("rotate.schedule.interval.ms", "rotate.interval.ms")}
    times = {key: number for key, value in schedules.items() if (number := whole(value))}
    if times:
        shortest = min(times, key=lambda key: times[key])
        draft.honoured(
            shortest, f"{draft.put('schedule', duration(str(times[shortest])))}: files are closed with each interval"
        )
    for key in schedules:
        draft.harmless(key, "files are closed with each interval, which the `schedule` begins")
    _compatibility(draft)


def _format(draft: Draft) -> None:
    name = draft.get(
        "format.class", "io.confluent.connect.hdfs.avro.AvroFormat" if "hdfs" in draft.get("connector.class") else ""
    )
    made = _FORMATS.get(name.rpartition(".")[2])
    if made is None:
        raise RefusedError(
            f"Files of {name} aren't written here." if name else "It doesn't say which format files have.",
            "there are Avro, Parquet, JSON and CSV (docs/file-sink.md).",
            "format.class",
        )
    said = draft.put("sink.format", made)
    draft.honoured("format.class", said)


def _codec(draft: Draft, key: str) -> None:
    value = draft.get(key).lower()
    if value:
        draft.honoured(key, draft.put("sink.codec", _CODECS.get(value, value)))


def _partitioner(draft: Draft) -> None:
    name = draft.get("partitioner.class", "DefaultPartitioner")
    made = _PARTITIONERS.get(name.rpartition(".")[2])
    if made is None:
        draft.lost(
            "partitioner.class",
            f"there is no partitioner here as {name}: each Kafka partition has a folder",
            "take another one (docs/file-sink.md)",
        )
        made = "default"
    draft.honoured("partitioner.class", draft.put("sink.partitioner", made))
    if made == "field":
        fields = names(draft.get("partition.field.name"))
        nested = [field for field in fields if "." in field]
        if nested:
            raise RefusedError(
                f"Rows are divided by columns, and {nested[0]} is a field inside of one.",
                "make it a column by Flatten, and name that one.",
                "partition.field.name",
            )
        draft.honoured("partition.field.name", draft.put("sink.partition_fields", fields))
    by_time = made in ("time", "daily", "hourly")
    if made == "time":
        for key, path, form in (
            ("path.format", "path_format", str),
            ("partition.duration.ms", "partition_duration", duration),
        ):
            _taken(draft, key, f"sink.{path}", form)
    if by_time:
        _taken(draft, "timezone", "sink.timezone", str)
        _taken(draft, "locale", "sink.locale", str)
        _extractor(draft)
    for key in (
        "partition.field.name",
        "path.format",
        "partition.duration.ms",
        "timezone",
        "locale",
        "timestamp.extractor",
        "timestamp.field",
    ):
        draft.harmless(key, f"the partitioner {made} doesn't go by it")


def _taken(draft: Draft, key: str, path: str, form: Any) -> None:
    if draft.has(key):
        try:
            draft.honoured(key, draft.put(path, form(draft.get(key))))
        except UnfitError as error:
            raise RefusedError(f"The value of {key} can't be: {error}.", "correct it.", key) from error


def _extractor(draft: Draft) -> None:
    name = draft.get("timestamp.extractor", "Wallclock")
    made = _EXTRACTORS.get(name.rpartition(".")[2].rpartition("$")[2].lower().removesuffix("timestampextractor"))
    if made is None:
        draft.lost(
            "timestamp.extractor",
            f"there is no extractor here as {name}: the time at which the interval began is taken",
            "make a column with the time by `set`, and take record_field",
        )
        return
    said = draft.put("sink.timestamp_extractor", made)
    draft.honoured("timestamp.extractor", f"{said}: when the interval began" if made == "wallclock" else said)
    if made == "record_field":
        field = draft.get("timestamp.field", "timestamp")
        if "." in field:
            raise RefusedError(
                f"A row's time is in a column, and {field} is inside of one.",
                "make it a column by Flatten.",
                "timestamp.field",
            )
        draft.honoured("timestamp.field", draft.put("sink.timestamp_field", field))


def _compatibility(draft: Draft) -> None:
    key = "schema.compatibility"
    value = draft.get(key, "NONE").lower()
    if value == "none":
        draft.honoured(key, "columns may change in any way")
    else:
        Maps("sink.schema_compatibility", one_of("backward", "forward", "full")).apply(draft, key)
