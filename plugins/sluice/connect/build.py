"""Makes pipeline files of connectors, one at a time, and reports the verdict on each key. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sluice.connect.clients import clients, cluster, group_of
from sluice.connect.configs import CLASS, ConnectorConfig
from sluice.connect.converters import read_keys, read_values, write_records
from sluice.connect.draft import AirflowConnection, Draft, Finding, RefusedError
from sluice.connect.rules import apply
from sluice.connect.tables import CONNECTORS, REFUSED, Known
from sluice.connect.tables.common import KEYS
from sluice.connect.tables.databases import wants_key
from sluice.connect.tables.jdbc_source import table_name, topic
from sluice.connect.transforms import transforms
from sluice.connectors import registry
from sluice.connectors.options import SinkOptions
from sluice.pipeline.routes import overlay
from sluice.untrusted import compiled

NOTHING_MADE = "nothing was made of this connector"
STAND_IN = "to_be_written STRING"
_STAGING = "staging"
"""Stand-in for columns that are yet to be written, so that the rest of the file can be checked."""
_SCHEDULES = (
    "rotate.schedule.interval.ms", "hoodie.kafka.commit.interval.secs", "iceberg.control.commit.interval-ms",
)  # fmt: skip
_KEEP_FIELDS = ("filter", "mask", "set")
_KEEP_COLUMNS = ("filter", "mask")
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_REGEX, _TOPICS = "topics.regex", "topics"
OWN: Final = "sluice."
"""The start of a key that Connect doesn't have, for what a file needs besides; the file's own key follows."""


@dataclass(frozen=True)
class Imported:
    """The pipeline of one connector, or of one of its topics.

    Attributes:
        name: the pipeline's; the connector's where nothing could be made.
        connector: the connector.
        what: the connector's common name, or its class.
        pipeline: the file's content; None if the connector was refused.
        missing: keys that have to be written before the file can be loaded, as paths.
        findings: the verdict on each key.
        connections: the Airflow connections that it needs.
        refused: why no pipeline could be made.
        steps: the remaining steps for the user, in order.
        group: the connector's consumer group.
        loads_anew: whether its table is new and loaded from the topics' beginning.
    """

    name: str
    connector: ConnectorConfig
    what: str
    pipeline: dict[str, Any] | None = None
    missing: tuple[tuple[str, ...], ...] = ()
    findings: tuple[Finding, ...] = ()
    connections: tuple[AirflowConnection, ...] = ()
    refused: str = ""
    steps: tuple[str, ...] = ()
    group: str = ""
    loads_anew: bool = False

    @property
    def changes_meaning(self) -> bool:
        """Whether a key that isn't honoured changes how records are written."""
        return any(one.verdict in ("differs", "not honoured") for one in self.findings)

    @property
    def status(self) -> int:
        """The command's exit status for it: 0, 1 or 2."""
        return 1 if self.pipeline is None else 2 if self.changes_meaning else 0

    def with_stand_ins(self) -> dict[str, Any]:
        """The file with columns where they are missing."""
        data: dict[str, Any] = self.pipeline or {}
        for path in self.missing:
            stand_in: Any = "/staging" if path[-1] == _STAGING else STAND_IN
            for name in reversed(path):
                stand_in = {name: stand_in}
            data = overlay(data, stand_in)
        return data

    def refuse(self, why: str) -> Imported:
        """The same, without a pipeline and with the reason."""
        findings = tuple(replace(one, verdict="not honoured", what=NOTHING_MADE, next_step="") for one in self.findings)
        return replace(self, pipeline=None, missing=(), findings=findings, refused=why, steps=())


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import.

    Attributes:
        worker: keys and values of the worker's file.
        path: the folder below which file sinks write, in place of the connector's own.
        kafka: id of the Airflow connection to the cluster.
        runs_patterns: see `Draft`.
    """

    worker: Mapping[str, str] = field(default_factory=dict, repr=False)
    path: str = ""
    kafka: str = "kafka_default"
    runs_patterns: bool = True


def imported(connector: ConnectorConfig, given: ImportOptions) -> Iterator[Imported]:
    """The pipelines of a connector: one, or one for each topic with a separate table."""
    name = connector.config.get(CLASS, "").strip()
    known = CONNECTORS.get(name)
    if known is None:
        yield _refused(connector, name)
        return
    topics = [topic.strip() for topic in connector.config.get(_TOPICS, "").split(",") if topic.strip()]
    if known.tables:
        yield from _of_tables(connector, known, given, topics)
    elif known.sink == "jdbc" and len(topics) > 1 and _table_for_each(connector.config):
        for topic in topics:
            of_topic = replace(connector, config={**connector.config, _TOPICS: topic})
            yield _made(of_topic, known, given, f"{connector.name}.{topic}", topics)
    else:
        yield _made(connector, known, given, connector.name, topics)


def _of_tables(connector: ConnectorConfig, known: Known, given: ImportOptions, topics: list[str]) -> Iterator[Imported]:
    """A pipeline for each table that the configuration names."""
    key = next((key for key in known.tables if connector.config.get(key, "").strip()), known.tables[0])
    tables = [table.strip() for table in connector.config.get(key, "").split(",") if table.strip()]
    if len(tables) < 2 or connector.config.get("query", "").strip():
        yield _made(connector, known, given, connector.name, topics)
        return
    for table in tables:
        of_table = replace(connector, config={**connector.config, key: table})
        yield _made(of_table, known, given, f"{connector.name}.{table}", topics)


def _table_for_each(config: Mapping[str, str]) -> bool:
    template = config.get("collection.name.format") or config.get("table.name.format") or "${topic}"
    return "${topic}" in template or bool(config.get("topics.to.tables.mapping"))


def _refused(connector: ConnectorConfig, name: str) -> Imported:
    """The result for an unknown connector: all of its keys are listed for the person who moves it."""
    why, step = REFUSED.get(
        name, (f"the connector {name or '(none)'} isn't known here", "see docs/coming-from.md for known connectors")
    )
    findings = [Finding(key, "not honoured", "of a connector that nothing is made of") for key in connector.config]
    return Imported(
        connector.name,
        connector,
        name or "(none)",
        None,
        (),
        tuple(findings),
        refused=f"{why[0].upper()}{why[1:]}. Next step: {step}.",
    )


def _made(connector: ConnectorConfig, known: Known, given: ImportOptions, name: str, topics: list[str]) -> Imported:
    pipeline_name = _NAME.sub("_", name).strip(".")[:190] or "connector"
    ids = {
        "kafka": given.kafka,
        "registry": "schema_registry_default",
        "database": _NAME.sub("_", connector.name)[:200],
    }
    draft = Draft(connector, given.worker, known.sink, ids, known.source, runs_patterns=given.runs_patterns)
    refused = ""
    missing: tuple[tuple[str, ...], ...] = ()
    try:
        (_fill_source if known.source == "jdbc" else _fill)(draft, known, given, pipeline_name, topics)
        missing = tuple(_left_to_write(draft))
    except RefusedError as error:
        refused = f"{error.why} Next step: {error.next_step}"
        draft.findings.clear()  # without a file no key is honoured
        if error.key:
            draft.lost(error.key, f"nothing could be made: {error.why}", error.next_step)
            draft.say(error.key, "not honoured", f"nothing could be made: {error.why}", error.next_step, "worker")
        for key in connector.config:
            draft.lost(key, NOTHING_MADE)
    data = draft.data
    result = Imported(
        pipeline_name,
        connector,
        known.words,
        None if refused else data,
        missing,
        tuple(_in_order(draft)),
        tuple(draft.connections.values()),
        refused,
        group=group_of({**_workers_group(given.worker), **connector.config}, connector.name),
        loads_anew=draft.loads_anew,
    )
    return replace(result, steps=tuple(_steps(draft, result))) if not refused else result


def _workers_group(worker: Mapping[str, str]) -> dict[str, str]:
    group = worker.get("consumer.group.id", "")
    return {"consumer.override.group.id": group} if group else {}


def _fill(draft: Draft, known: Known, given: ImportOptions, name: str, topics: list[str]) -> None:
    draft.put("name", name)
    draft.honoured(
        "name",
        f"name: {name}" + (", one for each topic" if len(topics) > 1 and draft.list(_TOPICS) != tuple(topics) else ""),
    )
    draft.honoured(CLASS, f"sink: {known.sink}")
    draft.put("schedule", known.schedule)
    draft.put("source.connection", draft.ids["kafka"])
    _topics(draft)
    draft.key_wanted = wants_key(draft) and known.sink == "jdbc"
    read_values(draft)
    transforms(draft)
    if given.path and known.folder:
        draft.folder = given.path
    known.step(draft)
    read_keys(draft)
    clients(draft)
    _errors(draft)
    apply(draft, KEYS, known.keys)
    if draft.steps_of_rows:
        draft.data["transforms"] = draft.steps_of_rows
    order = ("name", "schedule", "retries", "retry_delay", "source", "changes", "transforms", "errors", "sink", "write")
    draft.data = {
        key: draft.data[key] for key in (*order, *(k for k in draft.data if k not in order)) if key in draft.data
    }


def _fill_source(draft: Draft, known: Known, given: ImportOptions, name: str, _: list[str]) -> None:
    """A pipeline from a table of a database into a topic."""
    draft.put("name", name)
    draft.honoured("name", f"name: {name}")
    draft.honoured(CLASS, f"source: {known.source}, sink: {known.sink}")
    draft.put("schedule", known.schedule)
    draft.data["control"] = {"connection": draft.ids["kafka"]}
    draft.key_wanted = True
    draft.default_topic, draft.name_of_rows = topic(draft), table_name(draft)
    transforms(draft)
    draft.folder = f"{given.path.rstrip('/')}/{name}" if given.path else ""
    known.step(draft)
    draft.put("sink.connection", draft.ids["kafka"])
    write_records(draft)
    cluster(draft)
    apply(draft, known.keys)
    if draft.steps_of_rows:
        draft.data["transforms"] = draft.steps_of_rows
    draft.data = {key: draft.data[key] for key in _ORDER if key in draft.data}


_ORDER = ("name", "schedule", "retries", "retry_delay", "source", "transforms", "sink", "control")


def _topics(draft: Draft) -> None:
    topics = draft.list(_TOPICS)
    pattern = draft.get(_REGEX)
    if pattern:
        try:
            compiled(pattern)
        except ValueError as error:
            raise RefusedError(
                f"Python doesn't read the pattern as Java does: it {error}.", "write it in plainer words.", _REGEX
            ) from error
        draft.honoured(_REGEX, draft.put("source.topics_pattern", pattern))
    elif topics:
        draft.honoured(_TOPICS, draft.put("source.topics", topics[0] if len(topics) == 1 else list(topics)))
    else:
        raise RefusedError("It names no topics.", "add `topics`, or `topics.regex`.", _TOPICS)


def _errors(draft: Draft) -> None:
    """Map the handling of bad records, by the sink's capabilities."""
    tolerance, topic = "errors.tolerance", "errors.deadletterqueue.topic.name"
    if draft.get(tolerance, "none").lower() != "all":
        draft.honoured(tolerance, "the first bad record stops its interval")
        draft.harmless(topic, "the first bad record stops its interval, and none is sent there")
        return
    if not _quarantines(draft):
        why, step = (
            f"the sink {draft.sink} has no quarantine: the first bad record stops its interval",
            "see docs/bad-records.md for what to do then",
        )
        draft.lost(tolerance, why, step)
        draft.lost(topic, why, step)
        return
    draft.honoured(
        tolerance,
        f"{draft.put('errors.tolerance', 'all')}; bad records are kept in a table beside, and none is dropped",
    )
    if draft.has(topic):
        draft.honoured(topic, draft.put("errors.dead_letter_topic", draft.get(topic)))


def _quarantines(draft: Draft) -> bool:
    """Whether the sink can set bad records aside."""
    section = {**draft.data["sink"][draft.sink], "schema": STAND_IN}
    try:
        found = registry.section("sink", draft.sink)
        return (
            isinstance(found, type)
            and issubclass(found, SinkOptions)
            and found.model_validate(section).capabilities.quarantine
        )
    except ValueError:  # the file is checked as a whole afterwards, and says why
        return False


def _missing(draft: Draft) -> Iterator[tuple[str, ...]]:
    """The keys without which the file can't be loaded: columns that no converter knows."""
    if draft.source == "jdbc":  # the columns are the table's, and a column that `set` adds would be left out
        if any(next(iter(step)) not in _KEEP_COLUMNS for step in draft.steps_of_rows):
            yield draft.place("sink.schema")
        if not draft.folder:
            yield draft.place(f"sink.{_STAGING}")
        return
    value = draft.value_of("source.value") or {}
    kinds = [next(iter(step)) for step in draft.steps_of_rows]
    own = "registry" in value or "as" in value
    if not own and any(kind not in _KEEP_FIELDS for kind in kinds):
        yield draft.place("source.value.schema")
    if kinds or not own:
        yield draft.place("sink.schema")


def _left_to_write(draft: Draft) -> Iterator[tuple[str, ...]]:
    """The missing keys that the configuration doesn't have under `OWN`, either."""
    for path in tuple(_missing(draft)):
        key = f"{OWN}{'.'.join(path)}"
        if not draft.has(key):
            yield path
            continue
        here = draft.data
        for name in path[:-1]:
            here = here.setdefault(name, {})
        here[path[-1]] = draft.get(key)
        draft.findings.pop(("connector", key))  # that Connect has no such key
        draft.honoured(key, ".".join(path))


def _in_order(draft: Draft) -> Iterator[Finding]:
    """Findings in the order of the configuration, then the worker's, then defaults."""
    for key in draft.given.config:
        yield draft.findings[("connector", key)]
    yield from (one for (of, _), one in draft.findings.items() if of == "worker")
    yield from (one for (of, _), one in draft.findings.items() if of == "default")


def _steps_of_tables(draft: Draft, made: Imported) -> Iterator[str]:
    yield from draft.steps
    for path in made.missing:
        if path[-1] != _STAGING:
            yield f"write {'.'.join(path)}: the columns of the records, behind the transforms"
    yield "stop the connector for good before the first interval"
    key = ".".join(draft.place("source.starting_offsets"))
    yield (
        f"set its last position: {key} (docs/jdbc-source.md); without it, all rows are sent again: harmless only"
        " where readers take the last record of a key"
    )


def _steps(draft: Draft, made: Imported) -> Iterator[str]:
    if draft.source == "jdbc":
        yield from _steps_of_tables(draft, made)
        return
    if ("source", "kafka", "value", "schema") in made.missing:
        yield f"write the records' fields: `sluice infer {made.name}.yaml --write` proposes them from a sample"
        yield f"write {'.'.join(made.missing[-1])}: the columns of the table, behind the transforms"
    elif made.missing and draft.steps_of_rows:
        yield f"write {'.'.join(made.missing[-1])}: the columns of the table, behind the transforms"
    elif made.missing:
        yield f"write the columns: `sluice infer {made.name}.yaml --write` proposes them from a sample"
    if not any(key in draft.given.config for key in _SCHEDULES):
        yield (
            f"look at the schedule, {made.pipeline['schedule']}: it is how long a record waits at most"
            if made.pipeline
            else ""
        )
    yield "stop the connector for good, and have it commit its last offsets, before the first interval"
    if draft.loads_anew:
        yield "leave --offsets: the new table is loaded from the topics' beginning (docs/coming-from.md)"
    elif draft.sink == "hudi":
        yield "omit --offsets: a table that is taken over has its own checkpoint (docs/coming-from.md)"
    elif not isinstance(draft.value_of("source.starting_offsets"), dict):
        yield (
            f"begin at its last position: --offsets reads the group {made.group}; otherwise the topics are loaded from"
            f" {draft.value_of('source.starting_offsets') or 'earliest'} on"
        )
