"""Registers the table's columns and partitions in catalogs, with Hudi's sync tools, in the coordinator's JVM."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.jvm.causes import causes
from sluice.jvm.gateway import HudiJvm
from sluice.logs import log
from sluice.pipeline.catalog import Catalog, CatalogSync, Glue, HiveMetastore
from sluice.pipeline.model import Pipeline
from sluice.private import PrivateSettings
from sluice.records.folders import HIVE_STYLE, URL_ENCODED
from sluice.sinks.hudi.glue import require_glue
from sluice.sinks.hudi.options import hudi_options
from sluice.storages import PERMISSION

HIVE_TOOL = "org.apache.hudi.hive.HiveSyncTool"
GLUE_TOOL = "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"
_HIVE = "hoodie.datasource.hive_sync."
_META = "hoodie.datasource.meta.sync."
# By default the metastore's client waits ten minutes for an answer, during which the next interval could not start.
_SOCKET_TIMEOUT = ("hive.metastore.client.socket.timeout", "60s")


def sync_catalogs(jvm: HudiJvm, pipeline: Pipeline) -> list[str]:
    """Register the table in each catalog that the pipeline names, and return the catalogs' names.

    The table isn't changed. A call also catches up on earlier failed calls, since the tools compare the whole table
    with the catalog's entry.

    Raises:
        RetryableError: a catalog doesn't answer, or refuses for a reason that may be temporary.
        ActionRequiredError: the catalog's tool is not among the jars, or permission is missing.
    """
    configured = pipeline.catalog_sync or CatalogSync.model_construct()
    synced = []
    for catalog in (configured.hive, configured.glue):
        if catalog is not None:
            _sync(jvm, pipeline, catalog)
            synced.append(f"{_kind(catalog)} {catalog.database}.{catalog.table or pipeline.table_name}")
    return synced


def require_catalogs(jvm: HudiJvm, pipeline: Pipeline) -> None:
    """Check before a table's first interval that its catalog in Glue can be reached: tool, login and rights.

    Raises:
        ActionRequiredError: the tool is not among the jars, the extra `glue` is missing, or a right.
        RetryableError: Glue doesn't answer.
    """
    catalog = pipeline.catalog_sync.glue if pipeline.catalog_sync is not None else None
    if catalog is not None:
        _tool(jvm, GLUE_TOOL)
        require_glue(catalog.database, catalog.table or pipeline.table_name, catalog.region)


def sync_options(pipeline: Pipeline, catalog: Catalog) -> dict[str, str]:
    """The tool's options; options in the pipeline file take precedence."""
    hudi = hudi_options(pipeline.sink.options)
    options = {
        f"{_META}base.path": hudi.path,
        f"{_META}base_file_format": "PARQUET",
        f"{_HIVE}database": catalog.database,
        f"{_HIVE}table": catalog.table or pipeline.table_name,
        f"{_HIVE}partition_fields": ",".join(hudi.partition_fields),
        f"{_HIVE}auto_create_database": "true",
        f"{_HIVE}support_timestamp": "true",  # else a timestamp appears as a number
        "hoodie.datasource.write.partitionpath.field": ",".join(hudi.partition_fields),
    }
    options |= {name: hudi.options[name] for name in (HIVE_STYLE, URL_ENCODED) if name in hudi.options}
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
        if PERMISSION.is_in(text):
            raise ActionRequiredError(
                "No permission to register the table in the catalog.",
                next_step="grant the user of Airflow's workers permission to create and alter the table in it.",
                reason=text,
                **where,
            ) from error
        raise RetryableError(
            "The catalog did not take what the table holds now.",
            next_step="the step is retried, and the next interval catches up; the commit remains. If the error comes "
            "back, check that the catalog is up, and its address in the pipeline's catalog_sync.",
            uris=getattr(catalog, "uris", None),
            reason=text,
            **where,
        ) from error
    log.info("the catalog is up to date", **where)


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
