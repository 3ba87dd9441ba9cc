"""Which `hoodie.*` options a pipeline file may set for Hudi's writers and table services. Pure.

An option is listed if it changes neither what exactly-once rests on (the timeline, markers, roll-back, locks, the
metadata table's own partitions, a table's keys and merging) nor the classes that are loaded. An option of a later Hudi
is refused until it is listed here. The names are those of Hudi 1.2: https://hudi.apache.org/docs/configurations
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from sluice.redact import is_secret_option
from sluice.sections import refuse_each

PAGE: Final = "docs/hudi-options.md"

REQUIRED: Final = MappingProxyType(
    {
        "hoodie.allow.multi.write.on.same.instant": "true",  # several participants write under one instant
        "hoodie.write.markers.type": "DIRECT",  # the coordinator must see the participants' markers, on storage
        "hoodie.embed.timeline.server": "false",
        "hoodie.metadata.enable": "true",  # it hides files that a zombie writes late
        "hoodie.clean.failed.writes.policy": "NEVER",  # the coordinator alone rolls back, by the control topic
        "hoodie.combine.before.insert": "false",
        "hoodie.combine.before.upsert": "false",  # every record read is written, so that the audit can count them
    }
)
"""What the commit over several processes depends on. Hudi gets these values, wherever an option comes from."""
FIXED: Final = MappingProxyType(
    {
        **REQUIRED,
        "hoodie.archive.async": "false",  # services in threads of a step would outlive it
        "hoodie.clean.async.enabled": "false",
        "hoodie.clustering.async.enabled": "false",
        "hoodie.clustering.inline": "false",  # an interval's commit would hold a second one
        "hoodie.clustering.schedule.inline": "false",
        "hoodie.compact.inline": "false",
        "hoodie.compact.schedule.inline": "false",
        "hoodie.log.compaction.enable": "false",
        "hoodie.log.compaction.inline": "false",
        "hoodie.logfile.data.block.format": "parquet",
        "hoodie.metadata.index.async": "false",
        "hoodie.metadata.streaming.write.enabled": "false",  # a second write to the metadata table, open for long
        "hoodie.parquet.small.file.limit": "0",  # a new key's row goes into the file group of its Kafka partition
        "hoodie.populate.meta.fields": "true",  # rows are counted and replaced by them
        "hoodie.write.concurrency.mode": "SINGLE_WRITER",  # the control topic takes the place of Hudi's locks
        "hoodie.write.record.positions": "false",
    }
)
"""Options with one possible value; it may be written down, in upper or lower case."""

GROUPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Parquet files": (
            "hoodie.parquet.block.size",
            "hoodie.parquet.bloom.filter.enabled",
            "hoodie.parquet.compression.codec",
            "hoodie.parquet.compression.ratio",
            "hoodie.parquet.dictionary.enabled",
            "hoodie.parquet.field_id.write.enabled",
            "hoodie.parquet.max.file.size",
            "hoodie.parquet.page.size",
            "hoodie.parquet.writelegacyformat.enabled",
        ),
        "Log files, and files of other formats": (
            "hoodie.hfile.block.size",
            "hoodie.hfile.compression.algorithm",
            "hoodie.logfile.data.block.max.size",
            "hoodie.logfile.max.size",
            "hoodie.logfile.to.parquet.compression.ratio",
            "hoodie.orc.block.size",
            "hoodie.orc.compression.codec",
            "hoodie.orc.max.file.size",
            "hoodie.orc.stripe.size",
        ),
        "The bloom filters in base files": (
            "hoodie.bloom.index.filter.dynamic.max.entries",
            "hoodie.bloom.index.filter.type",
            "hoodie.index.bloom.fpp",
            "hoodie.index.bloom.num_entries",
        ),
        "The table's folders": (
            "hoodie.datasource.write.hive_style_partitioning",
            "hoodie.datasource.write.partitionpath.urlencode",
        ),
        "How a write is spread, and the order of rows in files": (
            "hoodie.bulkinsert.shuffle.parallelism",
            "hoodie.bulkinsert.sort.mode",
            "hoodie.bulkinsert.sort.suffix.record_key",
            "hoodie.delete.shuffle.parallelism",
            "hoodie.file.listing.parallelism",
            "hoodie.finalize.write.parallelism",
            "hoodie.insert.shuffle.parallelism",
            "hoodie.markers.delete.parallelism",
            "hoodie.rollback.parallelism",
            "hoodie.upsert.shuffle.parallelism",
        ),
        "Memory, and what is spilled to a local disk": (
            "hoodie.common.diskmap.compression.enabled",
            "hoodie.common.spillable.diskmap.type",
            "hoodie.memory.compaction.fraction",
            "hoodie.memory.compaction.max.size",
            "hoodie.memory.dfs.buffer.max.size",
            "hoodie.memory.merge.fraction",
            "hoodie.memory.merge.max.size",
            "hoodie.memory.spillable.map.path",
            "hoodie.write.buffer.limit.bytes",
            "hoodie.write.status.storage.level",
            "hoodie.write.tagged.record.storage.level",
        ),
        "Time": ("hoodie.time.generator.max_expected_clock_skew_ms",),
        "The metadata table": (
            "hoodie.metadata.compact.max.delta.commits",
            "hoodie.metadata.compact.max.delta.seconds",
            "hoodie.metadata.compact.trigger.strategy",
            "hoodie.metadata.derive.from.datatable.clean.policy",
            "hoodie.metadata.file.cache.max.size.mb",
            "hoodie.metadata.max.deltacommits.when_pending",
            "hoodie.metadata.max.init.parallelism",
            "hoodie.metadata.max.logfile.size",
            "hoodie.metadata.max.reader.buffer.size",
            "hoodie.metadata.max.reader.memory",
            "hoodie.metadata.record.preparation.parallelism",
            "hoodie.metadata.spillable.map.path",
        ),
        "Column statistics": (
            "hoodie.metadata.index.column.stats.column.list",
            "hoodie.metadata.index.column.stats.enable",
            "hoodie.metadata.index.column.stats.file.group.count",
            "hoodie.metadata.index.column.stats.inMemory.projection.threshold",
            "hoodie.metadata.index.column.stats.max.columns.to.index",
            "hoodie.metadata.index.column.stats.parallelism",
            "hoodie.metadata.index.partition.stats.file.group.count",
            "hoodie.metadata.index.partition.stats.parallelism",
        ),
        "Cleaning": (
            "hoodie.clean.automatic",
            "hoodie.clean.commits.retained",
            "hoodie.clean.fileversions.retained",
            "hoodie.clean.hours.retained",
            "hoodie.clean.incremental.enabled",
            "hoodie.clean.max.commits.to.clean",
            "hoodie.clean.parallelism",
            "hoodie.clean.policy",
            "hoodie.clean.trigger.max.commits",
            "hoodie.clean.trigger.strategy",
        ),
        "Archiving": (
            "hoodie.archive.automatic",
            "hoodie.archive.delete.parallelism",
            "hoodie.commits.archival.batch",
            "hoodie.keep.max.commits",
            "hoodie.keep.min.commits",
            "hoodie.timeline.compaction.batch.size",
            "hoodie.timeline.compaction.target.file.max.bytes",
            "hoodie.timeline.manifest.retained.versions",
        ),
        "Compaction": (
            "hoodie.compact.inline.max.delta.commits",
            "hoodie.compact.inline.max.delta.seconds",
            "hoodie.compact.inline.trigger.strategy",
            "hoodie.compaction.daybased.target.partitions",
            "hoodie.compaction.logfile.num.threshold",
            "hoodie.compaction.logfile.size.threshold",
            "hoodie.compaction.partition.path.regex",
            "hoodie.compaction.strategy",
            "hoodie.compaction.target.io",
        ),
        "Clustering": (
            "hoodie.clustering.async.max.commits",
            "hoodie.clustering.group.read.parallelism",
            "hoodie.clustering.inline.max.commits",
            "hoodie.clustering.max.parallelism",
            "hoodie.clustering.plan.partition.filter.mode",
            "hoodie.clustering.plan.strategy.cluster.begin.partition",
            "hoodie.clustering.plan.strategy.cluster.end.partition",
            "hoodie.clustering.plan.strategy.daybased.lookback.partitions",
            "hoodie.clustering.plan.strategy.daybased.skipfromlatest.partitions",
            "hoodie.clustering.plan.strategy.max.bytes.per.group",
            "hoodie.clustering.plan.strategy.max.num.groups",
            "hoodie.clustering.plan.strategy.partition.regex.pattern",
            "hoodie.clustering.plan.strategy.partition.selected",
            "hoodie.clustering.plan.strategy.single.group.clustering.enabled",
            "hoodie.clustering.plan.strategy.small.file.limit",
            "hoodie.clustering.plan.strategy.sort.columns",
            "hoodie.clustering.plan.strategy.target.file.max.bytes",
            "hoodie.layout.optimize.build.curve.sample.size",
            "hoodie.layout.optimize.curve.build.method",
            "hoodie.layout.optimize.strategy",
        ),
        "Hudi's metrics": (
            "hoodie.metrics.cloudwatch.maxDatumsPerRequest",
            "hoodie.metrics.cloudwatch.metric.prefix",
            "hoodie.metrics.cloudwatch.namespace",
            "hoodie.metrics.cloudwatch.report.period.seconds",
            "hoodie.metrics.datadog.api.key.skip.validation",
            "hoodie.metrics.datadog.api.site",
            "hoodie.metrics.datadog.api.timeout.seconds",
            "hoodie.metrics.datadog.metric.host",
            "hoodie.metrics.datadog.metric.prefix",
            "hoodie.metrics.datadog.metric.tags",
            "hoodie.metrics.datadog.report.period.seconds",
            "hoodie.metrics.executor.enable",
            "hoodie.metrics.graphite.host",
            "hoodie.metrics.graphite.metric.prefix",
            "hoodie.metrics.graphite.port",
            "hoodie.metrics.graphite.report.period.seconds",
            "hoodie.metrics.m3.env",
            "hoodie.metrics.m3.host",
            "hoodie.metrics.m3.port",
            "hoodie.metrics.m3.service",
            "hoodie.metrics.m3.tags",
            "hoodie.metrics.on",
            "hoodie.metrics.prometheus.port",
            "hoodie.metrics.pushgateway.delete.on.shutdown",
            "hoodie.metrics.pushgateway.host",
            "hoodie.metrics.pushgateway.job.name",
            "hoodie.metrics.pushgateway.port",
            "hoodie.metrics.pushgateway.random.job.name.suffix",
            "hoodie.metrics.pushgateway.report.labels",
            "hoodie.metrics.pushgateway.report.period.seconds",
            "hoodie.metrics.reporter.metricsname.prefix",
            "hoodie.metrics.reporter.type",
        ),
    }
)
"""The options by what they are about, each under its present name."""
ALLOWED: Final = frozenset(name for names in GROUPS.values() for name in names)

EARLIER_NAMES: Final = MappingProxyType(
    {
        "hoodie.clean.async": "hoodie.clean.async.enabled",
        "hoodie.clean.max.commits": "hoodie.clean.trigger.max.commits",
        "hoodie.cleaner.commits.retained": "hoodie.clean.commits.retained",
        "hoodie.cleaner.fileversions.retained": "hoodie.clean.fileversions.retained",
        "hoodie.cleaner.hours.retained": "hoodie.clean.hours.retained",
        "hoodie.cleaner.incremental.mode": "hoodie.clean.incremental.enabled",
        "hoodie.cleaner.parallelism": "hoodie.clean.parallelism",
        "hoodie.cleaner.policy": "hoodie.clean.policy",
        "hoodie.cleaner.policy.failed.writes": "hoodie.clean.failed.writes.policy",
        "hoodie.datasource.clustering.async.enable": "hoodie.clustering.async.enabled",
        "hoodie.datasource.clustering.inline.enable": "hoodie.clustering.inline",
    }
)
"""Names of earlier releases of Hudi. Hudi prefers the present name, which Sluice's defaults have."""

_LONGEST_NAME = 100
_STRATEGIES = "org.apache.hudi.table.action.compact.strategy"
_LEVEL = r"(DISK_ONLY|MEMORY_ONLY|MEMORY_AND_DISK)(_SER)?(_2)?"
VALUES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "hoodie.compaction.strategy": (
            rf"{re.escape(_STRATEGIES)}\.(BoundedIO|BoundedPartitionAware|DayBased|LogFileNumBased|LogFileSizeBased|"
            r"PartitionRegexBased|UnBounded|UnBoundedPartitionAware)CompactionStrategy",
            f"a strategy of Hudi's, such as {_STRATEGIES}.LogFileNumBasedCompactionStrategy",
        ),
        "hoodie.metrics.reporter.type": (
            "(?i)GRAPHITE|INMEMORY|DATADOG|PROMETHEUS|PROMETHEUS_PUSHGATEWAY|CONSOLE|CLOUDWATCH|M3|SLF4J",
            "one of GRAPHITE, INMEMORY, DATADOG, PROMETHEUS, PROMETHEUS_PUSHGATEWAY, CONSOLE, CLOUDWATCH, M3, SLF4J; "
            "JMX opens a port",
        ),
        "hoodie.time.generator.max_expected_clock_skew_ms": (
            r"[2-9]\d\d|[1-9]\d{3,}",
            "200 or more, Hudi's default being 200",
        ),
        "hoodie.write.status.storage.level": (_LEVEL, "a storage level of Spark's, such as DISK_ONLY"),
        "hoodie.write.tagged.record.storage.level": (_LEVEL, "a storage level of Spark's, such as DISK_ONLY"),
    }
)
"""The values of options that don't take all: a regular expression, and its meaning in words."""

OPERATORS: Final = frozenset(
    [
        "hoodie.aws.access.key",
        "hoodie.aws.region",
        "hoodie.aws.role.arn",
        "hoodie.aws.role.external.id",
        "hoodie.aws.role.session.name",
        "hoodie.aws.secret.key",
        "hoodie.aws.session.token",
        "hoodie.datasource.hive_sync.jdbcurl",
        "hoodie.datasource.hive_sync.metastore.uris",
        "hoodie.datasource.hive_sync.password",
        "hoodie.datasource.hive_sync.username",
    ]
)
"""What a Spark connection may set in addition, and any option whose name says that it is a secret."""

REASONS: Final[tuple[tuple[str, str], ...]] = (
    (
        r"hoodie\.(datasource\.hive_sync|datasource\.meta[._]sync|meta[._]sync)\.",
        "put it into `catalog_sync`'s options",
    ),
    (
        r".*[._](class|classes|impls|injector|supplier|validators|plan\.generator)$|hoodie\.storage\.class",
        "it names a class to load: Sluice chooses them",
    ),
    (
        r"hoodie\.(datasource\.write\.(operation|recordkey|partitionpath|precombine|table|keygenerator)|table\.(?!service)"
        r"|keygen\.|base\.path|database\.name)",
        "the section's own keys say what the table is (`operation`, `record_key`, `partition_fields`, "
        "`ordering_field`, `table`)",
    ),
    (r"hoodie\.write\.(table\.version|auto\.upgrade)", "the section's `table_version` says it for a new table"),
    (r"hoodie\.write\.(lock|concurrency)\.", "the control topic takes the place of Hudi's locks"),
    (
        r"hoodie\.(.*\.(inline|async)\b|table\.service|log\.compaction|partition\.ttl)",
        "`table_services` maintains the table, and takes turns with the intervals",
    ),
    (
        r"hoodie\.(.*payload|.*\.merge|.*merger|write\.partial)",
        "`ordering_field` and `changes` say which version of a key is the row",
    ),
    (
        r"hoodie\.(metadata\.|.*index)",
        "an index is kept up to date by all writers of a table, and Sluice finds keys without one",
    ),
    (
        r"hoodie\.(filesystem|fs|consistency|metaserver|embed|markers|rollback|bootstrap)\.",
        "roll-back and recovery rest on it; settings of a file system are `spark.hadoop.*` in `write.conf`",
    ),
    (r"hoodie\.(avro|schema|internal|write\.schema|datasource\.write\.(schema|reconcile))", "the schema is Sluice's"),
)
"""Why names aren't listed, the first that fits: a regular expression of names, and what to do or know instead."""


def by_present_names(options: Mapping[str, str]) -> dict[str, str]:
    """The options under the names of the present Hudi; a present name wins over an earlier one."""
    earlier = {EARLIER_NAMES[name]: value for name, value in options.items() if name in EARLIER_NAMES}
    return earlier | {name: value for name, value in options.items() if name not in EARLIER_NAMES}


def refusal(name: str, value: str) -> str | None:
    """Why an option isn't taken, with what to do instead; None if it is.

    Args:
        name: the option, under its present or an earlier name.
        value: its value, which a refusal quotes only where it is one of few.
    """
    present = EARLIER_NAMES.get(name, name)
    if present in FIXED:
        wanted = FIXED[present]
        return None if value.lower() == wanted.lower() else f"must be {wanted} here, and can be left out"
    if present in ALLOWED:
        pattern, words = VALUES.get(present, ("(?s).*", ""))
        return None if re.fullmatch(pattern, value) else f"must be {words}"
    why = next((why for pattern, why in REASONS if re.match(pattern, name)), None)
    close = get_close_matches(name, ALLOWED, n=1, cutoff=0.9) if len(name) < _LONGEST_NAME else ()
    hint = f"; did you mean `{close[0]}`?" if close else f"; {why}" if why else ""
    return f"is not an option that a pipeline may set{hint} (the list is in {PAGE})"


def refuse_others(options: Mapping[str, str]) -> None:
    """Check that each of a section's `options` is listed, with a value that it takes.

    Raises:
        ValidationError: one isn't; each has its own place.
    """
    refuse_each("options", {name: refusal(name, value) for name, value in options.items()})


def not_an_operators(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a Spark connection's options that it may not set, with the reason.

    It may set those of a pipeline file, catalogs' log-ins, and secrets.
    """
    found = {
        name: refusal(name, value)
        for name, value in options.items()
        if name not in OPERATORS and (name in FIXED or name in EARLIER_NAMES or not is_secret_option(name))
    }
    return {name: why for name, why in found.items() if why is not None}
