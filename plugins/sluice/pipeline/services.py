"""The section `table_services`: table maintenance."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, Field, model_validator

from sluice.hoodie_options import refuse_others
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
    """Merge log files into base files. For upsert tables only."""

    after_delta_commits: Annotated[int, Field(gt=0)] = 10
    """The number of committed intervals after which their log files are merged."""


class Clustering(Section):
    """Rewrite small files as larger ones. For append tables only; off unless this section is present.

    A rewritten file holds rows of many intervals, so a single interval can no longer be replaced.
    """

    after_commits: Annotated[int, Field(gt=0)] = 20
    """The number of committed intervals after which small files are rewritten."""
    small_file: ByteSize = ByteSize(128 * 1024 * 1024)
    """Files below this size are rewritten."""
    target_file: ByteSize = ByteSize(512 * 1024 * 1024)
    """The approximate size of rewritten files."""
    sort_by: OneOrMore = ()
    """Columns that sort the rows of a file."""


class TableServices(Section):
    """Maintenance of the table, in a separate DAG, `<pipeline>.table_services`."""

    schedule: Annotated[timedelta | str | None, BeforeValidator(parse_duration)] = timedelta(hours=1)
    """A cron expression, or an interval such as `1 hour`. null: manual runs only."""
    compaction: Compaction = Compaction()
    clustering: Clustering | None = None
    keep_commits: Annotated[int, Field(gt=0)] = 20
    """The number of commits that time travel can read. Older file versions are deleted."""
    keep_timeline: Annotated[int, Field(gt=1)] = 30
    """The number of commits on the active timeline, more than `keep_commits`. Older commits are archived."""
    metadata_after_delta_commits: Annotated[int, Field(gt=0)] = 10
    """The number of changes to the metadata table after which its log files are merged."""
    wait: Duration = timedelta(minutes=30)
    """The maximum wait for an interval that holds the table. After it, the service is retried."""
    timeout: Duration = timedelta(hours=6)
    """The maximum duration of a service, from when it has the table. After it, an interval takes the table over."""
    conf: Options = Field(default_factory=dict)
    """Spark settings of compaction and clustering, on top of `write.conf`."""
    driver_memory: str | None = None
    """Memory of their Spark driver. Default: `write.driver_memory`."""
    options: Options = Field(default_factory=dict)
    """Additional `hoodie.*` options for the services, from the list in docs/hudi-options.md."""

    @model_validator(mode="after")
    def _timeline_holds_what_is_kept(self) -> TableServices:
        if self.keep_timeline <= self.keep_commits:
            raise ValueError("keep_timeline must be larger than keep_commits: cleaning reads the timeline")
        require_hoodie_names(self.options)
        refuse_secrets(self.options, PRIVATE_HUDI)
        refuse_others(self.options)
        refuse_secrets(self.conf, PRIVATE_SPARK)
        return self
