"""The Compose file and the images have the form that Compose wants, and the versions that everything else runs on."""

from __future__ import annotations

import re
import tomllib
import xml.etree.ElementTree as ET
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
AIRFLOW = {"airflow-init", "airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"}
ONE_OFF = {"airflow-init", "minio-bucket"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "docker" / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _pinned(project: dict[str, Any], package: str) -> str:
    (version,) = (d.partition("==")[2] for d in project["dependencies"] if d.startswith(f"{package}=="))
    return version


def _locked(package: str) -> str:
    found = re.search(rf"^{package}==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert found is not None
    return found.group(1)


def _jar(ivy: Path, name: str) -> str:
    (dependency,) = ET.parse(ivy).getroot().findall(f".//dependency[@name='{name}']")
    return dependency.attrib["rev"]


def test_airflow_and_python_are_those_of_the_project(dockerfile, project):
    found = re.search(r"^FROM apache/airflow:([\d.]+)-python(\d+\.\d+)$", dockerfile, re.MULTILINE)
    assert found is not None
    assert found.group(1) == _locked("apache-airflow")
    assert f">={found.group(2)}," in project["requires-python"]


def test_spark_is_pysparks(compose, project):
    for service in ("spark-master", "spark-worker"):
        assert compose["services"][service]["image"].startswith(
            f"apache/spark:{_pinned(project, 'pyspark')}-scala2.12-java17-"
        )
    bundle = ROOT / "plugins" / "sluice" / "local" / "ivy.xml"
    assert _jar(bundle, "spark-sql-kafka-0-10_2.12") == _pinned(project, "pyspark")
    for document in ("docker/README.md", "docs/production.md"):
        for version in re.findall(r"apache/spark:([\d.]+)-", (ROOT / document).read_text()):
            assert version == _pinned(project, "pyspark"), document


def test_kafka_is_the_embedded_brokers(compose):
    ivy = ROOT / "plugins" / "sluice" / "local" / "ivy.xml"
    assert compose["services"]["kafka"]["image"] == f"apache/kafka:{_jar(ivy, 'kafka_2.13')}"


def test_the_s3_file_system_is_of_pysparks_hadoop():
    names = [file.name for file in distribution("pyspark").files or [] if file.name.startswith("hadoop-client-api-")]
    assert names == [f"hadoop-client-api-{_jar(ROOT / 'docker' / 's3' / 'ivy.xml', 'hadoop-aws')}.jar"]


def test_images_are_pinned(compose):
    for name, service in compose["services"].items():
        _, _, tag = service["image"].partition(":")
        if "build" not in service:
            assert tag, name
            assert tag != "latest", name


def test_the_image_gets_what_it_copies(dockerfile):
    for sources in re.findall(r"^COPY (?:--\S+ )*(.+) \S+$", dockerfile, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source


def test_services_wait_for_what_they_need(compose):
    services = compose["services"]
    assert set(services) >= AIRFLOW | {"postgres", "kafka", "spark-master", "spark-worker", "minio", "minio-bucket"}
    for name, service in services.items():
        assert ("healthcheck" in service) != (name in ONE_OFF), name
        for needed, how in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if needed in ONE_OFF else "service_healthy"
            assert how == {"condition": wanted}, f"{name} -> {needed}"


def test_named_volumes_are_declared(compose):
    used = {v.partition(":")[0] for s in compose["services"].values() for v in s.get("volumes", [])}
    assert {v for v in used if not v.startswith((".", "/"))} == set(compose["volumes"])


def test_no_port_is_open_to_others(compose):
    for name, service in compose["services"].items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name}: {port}"


def test_secrets_come_from_the_environment(compose):
    """Each has a variable, and a default that nobody takes for a real one."""
    for name, service in compose["services"].items():
        for variable, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD$|SECRET|_KEY$|SQL_ALCHEMY_CONN", variable):
                defaults = re.findall(r"\$\{\w+:-([^}]*)\}", value)
                assert defaults, f"{name}: {variable} is not taken from the environment"
                assert all(d == "" or d.startswith("local-only") for d in defaults), f"{name}: {variable}"


def test_the_extras_of_aws_have_a_lock_that_stands_on_the_other(project, dockerfile):
    """Whoever isn't on AWS installs none of it, and whoever is gets the versions of the other lock."""
    makefile = (ROOT / "Makefile").read_text()
    own, aws = (re.search(rf"^{name} *:= (.+)$", makefile, re.MULTILINE) for name in ("EXTRAS", "EXTRAS_OF_AWS"))
    assert own is not None
    assert aws is not None
    assert sorted([*own[1].split(), *aws[1].split()]) == sorted(project["optional-dependencies"])
    known, more = (
        dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-aws.lock")
    )
    asked = {one for name in aws[1].split() for one in project["optional-dependencies"][name]}
    assert asked <= more.keys()
    assert not asked & known.keys()
    assert {name: more[name] for name in more.keys() & known.keys()} == {
        name: known[name] for name in more.keys() & known.keys()
    }
    assert "--requirement requirements-aws.lock" in dockerfile
    assert "!requirements-aws.lock" in (ROOT / "docker" / "Dockerfile.dockerignore").read_text()
