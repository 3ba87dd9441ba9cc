"""Which options of Hudi's a pipeline file and a Spark connection may set; no process is started."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sluice.errors import ActionRequiredError
from sluice.hoodie_options import (
    ALLOWED,
    EARLIER_NAMES,
    FIXED,
    GROUPS,
    OPERATORS,
    REASONS,
    REQUIRED,
    VALUES,
    refusal,
)
from sluice.pipeline import Hudi, TableServices
from sluice.pipeline.load import PipelineFileError, load_pipeline
from sluice.private import PrivateSettings
from sluice.redact import is_secret_option
from sluice.sinks.hudi.services import service_options
from sluice.sinks.hudi.write_config import write_options

PROJECT = Path(__file__).parents[2]
DANGEROUS = {
    "hoodie.populate.meta.fields": "false",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.datasource.write.operation": "insert_overwrite_table",
    "hoodie.datasource.write.recordkey.field": "other",
    "hoodie.datasource.write.keygenerator.class": "x.Y",
    "hoodie.table.name": "other",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
    "hoodie.base.path": "/elsewhere",
    "hoodie.compact.inline": "true",
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.async.enabled": "true",
    "hoodie.datasource.clustering.async.enable": "true",
    "hoodie.partition.ttl.inline": "true",
    "hoodie.datasource.write.payload.class": "x.Y",
    "hoodie.write.record.merge.custom.implementation.classes": "x.Y",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.index.type": "GLOBAL_BLOOM",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.streaming.write.enabled": "true",
    "hoodie.storage.class": "x.Y",
    "hoodie.io.factory.class": "x.Y",
    "hoodie.client.init.callback.classes": "x.Y",
    "hoodie.write.commit.callback.class": "x.Y",
    "hoodie.metrics.reporter.class": "x.Y",
    "hoodie.metrics.reporter.type": "JMX",
    "hoodie.compaction.strategy": "x.Y",
    "hoodie.filesystem.operation.retry.enable": "true",
    "hoodie.fs.atomic_creation.support": "file",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.parquet.outputtimestamptype": "TIMESTAMP_MILLIS",
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
    "hoodie.an.option.of.a.later.release": "1",
}
# What examples and pages set, and what Hudi's own guides do.
REASONABLE = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": "id,at",
    "hoodie.parquet.block.size": "1048576",
    "hoodie.parquet.max.file.size": "1000000",
    "hoodie.parquet.compression.codec": "gzip",
    "hoodie.index.bloom.num_entries": "60000",
    "hoodie.index.bloom.fpp": "0.000000001",
    "hoodie.bulkinsert.sort.mode": "PARTITION_SORT",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.keep.max.commits": "12",
    "hoodie.cleaner.commits.retained": "7",
    "hoodie.clean.parallelism": "7",
    "hoodie.metadata.derive.from.datatable.clean.policy": "false",
    "hoodie.compaction.strategy": "org.apache.hudi.table.action.compact.strategy.UnBoundedCompactionStrategy",
    "hoodie.metrics.on": "true",
    "hoodie.metrics.reporter.type": "prometheus_pushgateway",
    "hoodie.write.tagged.record.storage.level": "MEMORY_AND_DISK_SER",
    "hoodie.clustering.plan.strategy.max.num.groups": "3",
}


@pytest.fixture(scope="module")
def settings() -> ModuleType:
    spec = importlib.util.spec_from_file_location("settings", PROJECT / "tools" / "settings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_have_the_lists(settings, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["settings.py"])
    assert settings.main() == 0, capsys.readouterr().out


def a_file(folder: Path, options: str, *, section: str) -> Path:
    file = folder / "orders.yaml"
    sink = "name: orders\nsource: {kafka: {topics: orders}}\nsink:\n  hudi:\n    path: /lake/o\n    schema: id BIGINT\n"
    begins = "    options:\n" if section == "sink.hudi" else "table_services:\n    options:\n"
    file.write_text(f"{sink}{begins}      {options}\n")
    return file


@pytest.mark.parametrize("section", ["sink.hudi", "table_services"])
@pytest.mark.parametrize(("name", "value"), DANGEROUS.items())
def test_an_option_that_is_not_listed_is_refused_when_the_file_is_loaded(tmp_path, section, name, value):
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(a_file(tmp_path, f'{name}: "{value}"', section=section))
    text = str(caught.value)
    assert f"orders.yaml:{8 if section == 'sink.hudi' else 9}: {section}.options.{name}: " in text
    assert "must be " in text or "docs/hudi-options.md" in text


@pytest.mark.parametrize("section", ["sink.hudi", "table_services"])
@pytest.mark.parametrize(("name", "value"), REASONABLE.items())
def test_what_changes_no_guarantee_is_taken(tmp_path, section, name, value):
    pipeline = load_pipeline(a_file(tmp_path, f'{name}: "{value}"', section=section))
    present = EARLIER_NAMES.get(name, name)
    if section == "sink.hudi":
        assert write_options(pipeline.writer("id BIGINT", "{}"))[present] == value
    else:
        assert service_options(pipeline.table_services or TableServices())[present] == value


def test_all_of_them_are_named_at_once_and_a_misspelt_one_with_the_right_one(tmp_path):
    wrong = "{hoodie.parquet.blok.size: s3cr3t, hoodie.storage.class: s3cr3t}"
    file = a_file(tmp_path, "", section="sink.hudi")
    file.write_text(file.read_text().replace("options:\n", f"options: {wrong}\n"))
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(file)
    text = str(caught.value)
    assert "did you mean `hoodie.parquet.block.size`" in text
    assert "hoodie.storage.class" in text
    assert "s3cr3t" not in text  # what isn't known may be a secret


@pytest.mark.parametrize(("name", "value"), FIXED.items())
def test_an_option_with_one_value_may_be_written_in_any_case(name, value):
    for spelt in (value, value.upper(), value.lower()):
        Hudi.model_validate({"path": "/lake/o", "schema": "id BIGINT", "options": {name: spelt}})
    assert refusal(name, "other") is not None


def test_a_present_name_wins_over_an_earlier_one():
    both = {"hoodie.clean.policy": "KEEP_LATEST_COMMITS", "hoodie.cleaner.policy": "KEEP_LATEST_BY_HOURS"}
    for options in (both, dict(reversed(both.items()))):
        found = service_options(TableServices(options=options))
        assert found["hoodie.clean.policy"] == "KEEP_LATEST_COMMITS"
        assert "hoodie.cleaner.policy" not in found


def test_the_list_names_no_class_no_secret_and_nothing_twice():
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(ALLOWED)
    assert not ALLOWED & set(FIXED)
    assert set(VALUES) <= ALLOWED
    assert set(EARLIER_NAMES.values()) <= ALLOWED | set(FIXED)
    assert not [name for name in names if is_secret_option(name)]
    assert not [name for name in names if re.search(r"class(es)?$|\.lock\b|concurrency|payload|merger|callback", name)]
    for group in GROUPS.values():
        assert list(group) == sorted(group)


@pytest.mark.parametrize(("pattern", "why"), REASONS)
def test_no_reason_contradicts_the_list(pattern: str, why: str):
    assert why
    assert [name for name in DANGEROUS if re.match(pattern, name)] or "catalog_sync" in why or "schema" in why


# A Spark connection's


@pytest.mark.parametrize(("name", "value"), DANGEROUS.items())
def test_a_connection_may_not_set_them_either(monkeypatch, name, value):
    monkeypatch.setenv("SLUICE_SPARK_PRIVATE", f'{{"hudi": {{"{name}": "{value}"}}}}')
    with pytest.raises(ActionRequiredError, match="Spark connection") as caught:
        PrivateSettings.from_environment()
    assert name in str(caught.value)
    assert "docs/hudi-options.md" in str(caught.value.next_step)


def test_a_connection_may_set_log_ins_and_what_a_file_may():
    given = dict.fromkeys(OPERATORS, "x") | REASONABLE | {"hoodie.metrics.datadog.api.key": "x"}
    assert PrivateSettings({}, given).hudi == given


@pytest.mark.parametrize("name", REQUIRED)
def test_a_connection_changes_nothing_that_the_commit_depends_on(monkeypatch, name):
    hudi: Any = Hudi(path="/lake/o", schema="id BIGINT")
    writer = hudi.writer("o", None, maintained=False)
    with pytest.raises(ActionRequiredError):
        PrivateSettings({}, {name: "other"})
    for key, text in PrivateSettings({}, {name: REQUIRED[name].swapcase()}).to_environment().items():
        monkeypatch.setenv(key, text)
    assert write_options(writer)[name] == REQUIRED[name]
    with pytest.raises(ActionRequiredError, match="would break exactly-once"):
        write_options(writer.model_copy(update={"options": {name: "other"}}))
