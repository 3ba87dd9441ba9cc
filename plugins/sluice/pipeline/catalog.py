"""The section `catalog_sync`: catalogs in which the table is registered."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, field_validator, model_validator

from sluice.identifiers import catalog_name
from sluice.sections import PRIVATE_HUDI, Duration, Expanded, Options, Section, refuse_secrets


class Catalog(Section):
    """A catalog in which the table is registered, with its columns and partitions."""

    database: str = "default"
    """The catalog's database. It is created if it doesn't exist."""
    table: str | None = None
    """The table's name in the catalog. Default: the sink's table name."""
    options: Options = Field(default_factory=dict)
    """Further options: `hoodie.datasource.hive_sync.*`, `hoodie.datasource.meta.sync.*` and `hive.*`."""

    @field_validator("options")
    @classmethod
    def _no_secrets(cls, options: dict[str, str]) -> dict[str, str]:
        refuse_secrets(options, PRIVATE_HUDI)
        return options


class HiveMetastore(Catalog):
    """Hive's metastore, by its Thrift service."""

    uris: Expanded
    """Comma-separated URIs, such as `thrift://host:9083`. `${SLUICE_NAME}` is replaced."""

    @field_validator("database", "table")
    @classmethod
    def _are_names(cls, name: str | None) -> str | None:
        return name if name is None else catalog_name(name)


class Glue(Catalog):
    """The AWS Glue data catalog. Requires Hudi's AWS bundle among the coordinator's jars."""

    region: str | None = None
    """The AWS region. Default: the region in the worker's AWS configuration."""


class CatalogSync(Section):
    """Catalogs that are updated after each commit."""

    hive: HiveMetastore | None = None
    glue: Glue | None = None
    timeout: Duration = timedelta(minutes=5)
    """The maximum duration of one attempt to update the catalogs."""

    @model_validator(mode="after")
    def _names_one(self) -> CatalogSync:
        if self.hive is None and self.glue is None:
            raise ValueError("name a catalog: hive, glue, or both")
        return self
