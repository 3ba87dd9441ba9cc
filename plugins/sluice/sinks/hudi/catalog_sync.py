"""Registers the table's columns and partitions in catalogs, by Hudi's own sync tools, in the coordinator's JVM."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.jvm.causes import causes, is_refused
from sluice.jvm.gateway import HudiJvm
from sluice.logs import log
from sluice.pipeline.catalog import Catalog, CatalogSync, Glue, HiveMetastore
from sluice.pipeline.model import Pipeline
from sluice.private import PrivateSettings
from sluice.sinks.hudi.options import hudi_options

HIVE_TOOL = "org.apache.hudi.hive.HiveSyncTool"
GLUE_TOOL = "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"
_HIVE = "hoodie.datasource.hive_sync."
_META = "hoodie.datasource.meta.sync."
# By default the metastore's client waits ten minutes for an answer, during which the next interval could not start.
_SOCKET_TIMEOUT = ("hive.metastore.client.socket.timeout", "60s")


def sync_catalogs(jvm: HudiJvm, pipeline: Pipeline) -> list[str]:
    """Tell each catalog that the pipeline names of the table, and return their names.

    Nothing of the table is changed, and what an earlier call has missed is made up: the tools compare the whole table
    with what the catalog holds.

    Raises:
        RetryableError: a catalog does not answer, or refuses for a reason that may pass.
        ActionRequiredError: the catalog's tool is not among the jars, or permission is missing.
    """
    configured = pipeline.catalog_sync or CatalogSync.model_construct()
    synced = []
    for catalog in (configured.hive, configured.glue):
        if catalog is not None:
            _sync(jvm, pipeline, catalog)
            synced.append(f"{_kind(catalog)} {catalog.database}.{catalog.table or pipeline.table_name}")
    return synced


def sync_options(pipeline: Pipeline, catalog: Catalog) -> dict[str, str]:
    """The tool's options; those of the pipeline file win."""
    hudi = hudi_options(pipeline.sink.options)
    options = {
        f"{_META}base.path": hudi.path,
        f"{_META}base_file_format": "PARQUET",
        f"{_HIVE}database": catalog.database,
        f"{_HIVE}table": catalog.table or pipeline.table_name,
        f"{_HIVE}partition_fields": ",".join(hudi.partition_fields),
        f"{_HIVE}auto_create_database": "true",
        f"{_HIVE}support_timestamp": "true",  # else a timestamp shows as a number
        "hoodie.datasource.write.partitionpath.field": ",".join(hudi.partition_fields),
    }
    hive_style = hudi.options.get("hoodie.datasource.write.hive_style_partitioning")
    if hive_style is not None:
        options["hoodie.datasource.write.hive_style_partitioning"] = hive_style
    if isinstance(catalog, HiveMetastore):
        options |= {f"{_HIVE}mode": "hms", f"{_HIVE}metastore.uris": catalog.uris}
    if isinstance(catalog, Glue) and catalog.region:
        options["hoodie.aws.region"] = catalog.region
    own = {**catalog.options, **PrivateSettings.from_environment().hudi}
    return options | {name: value for name, value in own.items() if name.startswith("hoodie.")}


def _sync(jvm: HudiJvm, pipeline: Pipeline, catalog: Catalog) -> None:
    tool_class = _tool(jvm, GLUE_TOOL if isinstance(catalog, Glue) else HIVE_TOOL)
    configuration = jvm.jvm.org.apache.hadoop.conf.Configuration(jvm.storage.unwrap())
    own = {name: value for name, value in catalog.options.items() if not name.startswith("hoodie.")}
    for name, value in {_SOCKET_TIMEOUT[0]: _SOCKET_TIMEOUT[1], **own}.items():
        configuration.set(name, value)
    where = {"table": pipeline.table_id, "catalog": _kind(catalog), "database": catalog.database}
    try:
        tool = tool_class(jvm.properties(sync_options(pipeline, catalog)), configuration)
        try:
            tool.syncHoodieTable()
        finally:
            tool.close()
    except Py4JJavaError as error:
        chain = causes(error.java_exception)
        text = " <- ".join(chain)[:2000]
        if is_refused(text):
            raise ActionRequiredError(
                "The catalog gives no permission.",
                next_step="grant the user of Airflow's workers leave to create and change the table in it.",
                reason=text,
                **where,
            ) from error
        raise RetryableError(
            "The catalog did not take what the table holds now.",
            next_step="the step is retried, and the next interval makes up for it; the commit stands. If it comes "
            "back, check that the catalog is up, and its address in the pipeline's catalog_sync.",
            uris=getattr(catalog, "uris", None),
            reason=text,
            **where,
        ) from error
    log.info("the catalog knows the table as it is now", **where)


def _tool(jvm: HudiJvm, name: str) -> Any:
    try:
        jvm.jvm.java.lang.Class.forName(name)
    except Py4JJavaError as error:
        bundle = "hudi-aws-bundle" if name == GLUE_TOOL else "hudi-spark3.5-bundle"
        raise ActionRequiredError(
            f"The catalog's tool {name} is not among the coordinator's jars.",
            next_step=f"put {bundle} of Hudi's version into the folder `coordinator` of SLUICE_JARS on each worker.",
        ) from error
    return jvm.nested(name)


def _kind(catalog: Catalog) -> str:
    return "glue" if isinstance(catalog, Glue) else "hive"
