from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from sluice import runtime
from sluice.local import jars, truststore
from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome
from sluice.local.java import java_command, java_home, packaged_java_home
from sluice.runtime import java_version


def _entries(home: SluiceHome, name: str) -> set[str]:
    found: set[str] = set()
    for jar in jars.class_path(home, name):
        with zipfile.ZipFile(jar) as archive:
            found.update(archive.namelist())
    return found


@pytest.mark.parametrize(
    ("name", "main_class"),
    [
        ("spark", "org/apache/hudi/HoodieDatasetBulkInsertHelper.class"),
        ("spark", "org/apache/spark/sql/kafka010/KafkaSourceProvider.class"),
        ("spark", "org/apache/spark/sql/avro/functions.class"),
        ("spark", "org/apache/spark/sql/protobuf/functions.class"),
        ("local", "com/globalmentor/apache/hadoop/fs/BareLocalFileSystem.class"),
        ("coordinator", "org/apache/hudi/client/HoodieJavaWriteClient.class"),
        ("coordinator", "org/apache/spark/sql/avro/SchemaConverters.class"),
        ("broker", "kafka/tools/StorageTool.class"),
        # Bundles, which Ivy leaves out without a word unless they are named.
        ("broker", "org/xerial/snappy/Snappy.class"),
        ("broker", "org/apache/logging/slf4j/Log4jLogger.class"),
    ],
)
def test_each_class_path_holds_what_it_is_for(home, name, main_class):
    assert main_class in _entries(home, name)


def test_the_second_time_nothing_is_fetched(home, monkeypatch):
    monkeypatch.setattr(jars, "_run_ivy", lambda *_: pytest.fail("Ivy was started"))
    assert jars.ensure_jars(home) is False


@pytest.fixture
def fake_ivy(monkeypatch):
    """An Ivy that leaves one jar in each class path, and counts how often it was asked."""
    calls: list[Path] = []

    def run(home: SluiceHome, target: Path, log: Path, on_output: object) -> None:
        calls.append(target)
        for name in jars.CLASS_PATHS:
            (target / name).mkdir(parents=True)
            (target / name / f"new-{len(calls)}.jar").touch()

    monkeypatch.setattr(jars, "_run_ivy", run)
    monkeypatch.setattr(jars, "verify", lambda *_: None)
    return calls


def _listed(folder: Path) -> str:
    names = [f"{name}/{name}.jar" for name in jars.CLASS_PATHS]
    for name in names:
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(name)
    return "".join(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in names)


def test_jars_of_the_list_are_taken(tmp_path):
    jars.verify(tmp_path, _listed(tmp_path))


@pytest.mark.parametrize("what", ["changed", "added", "missing"])
def test_a_jar_that_is_not_the_one_that_was_tested_is_named(tmp_path, what):
    expected = _listed(tmp_path)
    jar = tmp_path / "spark" / ("another.jar" if what == "added" else "spark.jar")
    if what == "missing":
        jar.unlink()
    else:
        jar.write_text("somebody else's")
    with pytest.raises(LocalRuntimeError, match=f"spark/{jar.name}"):
        jars.verify(tmp_path, expected)


def test_jars_that_are_not_those_of_the_list_are_never_used(tmp_path, monkeypatch, fake_ivy):
    home = SluiceHome(tmp_path)
    jars.ensure_jars(home)
    (home.jars / "ivy.sha256").write_text("of another ivy.xml")
    monkeypatch.undo()
    monkeypatch.setattr(jars, "_run_ivy", lambda home, target, *_: [
        ((target / name).mkdir(parents=True), (target / name / "new-2.jar").touch()) for name in jars.CLASS_PATHS
    ])  # fmt: skip
    with pytest.raises(LocalRuntimeError, match=r"new-2\.jar"):
        jars.ensure_jars(home)
    assert [jar.name for jar in jars.class_path(home, "spark")] == ["new-1.jar"]


def test_production_has_no_jar_that_only_laptops_need(home):
    for name in ("spark", "coordinator"):
        assert "com/globalmentor/apache/hadoop/fs/BareLocalFileSystem.class" not in _entries(home, name)


def test_sparks_kafka_client_has_no_known_hole(home):
    (client,) = (jar for jar in jars.class_path(home, "spark") if jar.name.startswith("kafka-clients-"))
    version = tuple(int(part) for part in client.stem.rpartition("-")[2].split("."))
    assert version >= (3, 9, 1)  # CVE-2025-27817


@pytest.fixture
def a_java(tmp_path):
    def make(version: str) -> Path:
        home = tmp_path / f"java-{version}"
        home.mkdir()
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        return home

    return make


def test_a_java_home_that_spark_runs_on_outranks_the_wheel(a_java, monkeypatch):
    monkeypatch.delenv("SLUICE_JAVA_HOME", raising=False)
    fit, unfit = a_java("17.0.15"), a_java("21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(fit))
    assert runtime.java_home() == fit
    monkeypatch.setenv("JAVA_HOME", str(unfit))
    assert runtime.java_home() == packaged_java_home()
    monkeypatch.setenv("SLUICE_JAVA_HOME", str(unfit))
    assert runtime.java_home() == unfit


def test_other_dependencies_replace_the_jars_as_a_whole(tmp_path, fake_ivy):
    home = SluiceHome(tmp_path)
    assert jars.ensure_jars(home) is True
    (home.jars / "ivy.sha256").write_text("of another ivy.xml")
    assert jars.ensure_jars(home) is True
    assert [jar.name for jar in jars.class_path(home, "spark")] == ["new-2.jar"]
    assert sorted(p.name for p in tmp_path.glob("jars.*")) == ["jars.lock"]


def test_a_failure_leaves_the_jars_that_were_there(tmp_path, fake_ivy, monkeypatch):
    home = SluiceHome(tmp_path)
    jars.ensure_jars(home)
    (home.jars / "ivy.sha256").write_text("of another ivy.xml")

    def fail(*_: object) -> None:
        raise jars._IvyFailedError("UNRESOLVED DEPENDENCY: org.example#gone;1.0: not found")

    monkeypatch.setattr(jars, "_run_ivy", fail)
    with pytest.raises(LocalRuntimeError, match=r"org\.example#gone") as failure:
        jars.ensure_jars(home)
    assert "SLUICE_IVY_SETTINGS" in str(failure.value)
    assert [jar.name for jar in jars.class_path(home, "spark")] == ["new-1.jar"]


def test_missing_jars_say_how_to_get_them(tmp_path):
    with pytest.raises(LocalRuntimeError, match="make install"):
        jars.class_path(SluiceHome(tmp_path), "spark")


def test_java_trusts_the_authorities_of_this_machine(tmp_path):
    options = truststore.network_options(tmp_path)
    if not any("trustStore=" in option for option in options):
        pytest.skip("this machine has no list of certificate authorities")
    keytool = Path(java_command()).with_name("keytool")
    if not keytool.exists():
        pytest.skip("this Java has no keytool")
    listing = subprocess.run(
        [keytool, "-list", "-keystore", tmp_path / "trust.p12", "-storepass", "changeit"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    ).stdout
    # Without Java's own attribute the entries are there, but none of them is trusted.
    assert listing.count("trustedCertEntry") > 0


def test_a_proxy_is_passed_without_its_password(tmp_path, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://someone:hidden@proxy.example:3128")
    options = truststore.network_options(tmp_path)
    assert "-Dhttps.proxyHost=proxy.example" in options
    assert "-Dhttps.proxyPort=3128" in options
    assert not any("hidden" in option for option in options)


def test_a_java_that_spark_cannot_run_on_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_JAVA_HOME", str(tmp_path))
    java_home.cache_clear()
    try:
        with pytest.raises(LocalRuntimeError, match="SLUICE_JAVA_HOME"):
            java_home()
    finally:
        java_home.cache_clear()


def test_the_java_in_use_runs_spark():
    assert java_version(java_home()) in range(11, 18)
