"""The section `table_services`: what keeps the table small and quick."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, Field, model_validator

from sluice.sections import (
    PRIVATE_HUDI,
    PRIVATE_SPARK,
    Duration,
    OneOrMore,
    Options,
    Section,
    parse_duration,
    refuse_secrets,
    require_hoodie_names,
)


class Compaction(Section):
    """Log files merged into base files; of upsert tables only."""

    after_delta_commits: Annotated[int, Field(gt=0)] = 10
    """How many intervals are committed before their log files are merged."""


class Clustering(Section):
    """Small files rewritten as larger ones; of append tables only, and only where this section is there.

    A rewritten file holds rows of many intervals, so a single one of these can't be replaced by itself any more.
    """

    after_commits: Annotated[int, Field(gt=0)] = 20
    """How many intervals are committed before small files are rewritten."""
    small_file: ByteSize = ByteSize(128 * 1024 * 1024)
    """Files below this size are rewritten."""
    target_file: ByteSize = ByteSize(512 * 1024 * 1024)
    """About the size of the files that are written."""
    sort_by: OneOrMore = ()
    """Columns by which the rows of a file are sorted."""


class TableServices(Section):
    """What keeps the table small and quick to read and to write: a DAG of its own, `<pipeline>.table_services`."""

    schedule: Annotated[timedelta | str | None, BeforeValidator(parse_duration)] = timedelta(hours=1)
    """A cron expression, or a time between runs such as `1 hour`; null means by hand."""
    compaction: Compaction = Compaction()
    clustering: Clustering | None = None
    keep_commits: Annotated[int, Field(gt=0)] = 20
    """How many of the last commits can still be read as the table was then; older file versions are deleted."""
    keep_timeline: Annotated[int, Field(gt=1)] = 30
    """How many of the last commits stay on the active timeline; older ones are archived."""
    metadata_after_delta_commits: Annotated[int, Field(gt=0)] = 10
    """How many changes of the metadata table are made before its log files are merged."""
    wait: Duration = timedelta(minutes=30)
    """How long a service waits for an interval that holds the table; then it is tried again."""
    conf: Options = Field(default_factory=dict)
    """Spark settings of compaction and clustering, on top of `write.conf`."""
    driver_memory: str | None = None
    """Memory of their Spark driver; that of `write` by default."""
    options: Options = Field(default_factory=dict)
    """Further `hoodie.*` options of the services."""

    @model_validator(mode="after")
    def _timeline_holds_what_is_kept(self) -> TableServices:
        if self.keep_timeline <= self.keep_commits:
            raise ValueError("keep_timeline must be larger than keep_commits: cleaning reads the timeline")
        require_hoodie_names(self.options)
        refuse_secrets(self.options, PRIVATE_HUDI)
        refuse_secrets(self.conf, PRIVATE_SPARK)
        return self
