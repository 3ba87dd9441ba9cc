"""The section `catalog_sync`: catalogs in which the table is registered."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, field_validator, model_validator

from sluice.sections import PRIVATE_HUDI, Duration, Expanded, Options, Section, refuse_secrets


class Catalog(Section):
    """A catalog in which the table is registered, with its columns and partitions."""

    database: str = "default"
    """The catalog's database; made where it isn't there."""
    table: str | None = None
    """The table's name in the catalog; the Hudi table's by default."""
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
    """`thrift://host:9083`, several with commas between; `${SLUICE_NAME}` is replaced."""


class Glue(Catalog):
    """The AWS Glue data catalog; needs Hudi's AWS bundle among the coordinator's jars."""

    region: str | None = None
    """The AWS region; that of the worker's AWS configuration by default."""


class CatalogSync(Section):
    """Catalogs that are told of the table after each commit."""

    hive: HiveMetastore | None = None
    glue: Glue | None = None
    timeout: Duration = timedelta(minutes=5)
    """After this, one attempt to tell them is given up."""

    @model_validator(mode="after")
    def _names_one(self) -> CatalogSync:
        if self.hive is None and self.glue is None:
            raise ValueError("name a catalog: hive, glue, or both")
        return self
