"""Fixtures of the tests that run whole intervals: real broker, real Spark, real Hudi, processes that really die."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from sluice.local.broker import LocalBroker
from sluice.local.home import SluiceHome
from sluice.private import VARIABLE as PRIVATE
from sluice.schemas.registry.config import VARIABLE

from ..cluster.servers import PostgreSql, missing, postgresql_programs
from ..databases_in_java import DerbyServer, H2Server, ensure_databases
from ..databases_in_java import class_paths as with_drivers
from ..hdfs import LocalHdfs, ensure_hdfs
from ..registry import LocalRegistry
from ..s3 import LocalS3, class_paths, ensure_extras, ensure_s3
from .harness import Drivers, Flow, SharedJvm
from .harness.databases import MariaDatabase, PostgresDatabase, Readable, SqliteFile, mariadb_server
from .harness.jdbc import Table, jdbc_table
from .harness.streams import Streams
from .harness.topics import Topics, topics_of
from .harness.topics import environment as target_environment
from .harness.windows import COLUMNS

_OTHER_DATABASES = {
    "test_jdbc_sink": ("sqlite", "mariadb"),
    "test_jdbc_deaths": ("sqlite", "mariadb"),
    "test_jdbc_bad_input": ("sqlite", "mariadb"),
    "test_jdbc_merge": ("sqlite",),
    "test_jdbc_conformance": ("postgresql", "mariadb"),
    "test_jdbc_source_horizons": ("mariadb",),
    "test_jdbc_source_exact": ("mariadb",),
    "test_verify_of_sinks": ("sqlite", "mariadb"),
    "test_quarantine_of_sinks": ("sqlite", "mariadb"),
    "test_jdbc_tables": ("sqlite", "mariadb"),
}
"""Of a file's tests that are tried on each database: those which are left to `make test-thorough`."""


@pytest.hookimpl(tryfirst=True)  # before cells are left out by their marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One file's tests run in one worker, where they share a broker, a JVM and a Spark driver."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
            item.add_marker(pytest.mark.spark)
            database = getattr(item, "callspec", None) and item.callspec.params.get("database")
            others = _OTHER_DATABASES.get(item.path.stem, ())
            too = [one.args[0] for one in item.iter_markers("also_on")]
            if database in others and database not in too:
                item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session")
def shared_jvm() -> Iterator[SharedJvm]:
    shared = SharedJvm()
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    pool = Drivers(tmp_path_factory.mktemp("drivers"))
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def extras(home: SluiceHome) -> Path:
    """The folder of the extras s3, msk and glue."""
    return ensure_extras(home)


@pytest.fixture(scope="module")
def s3(home, tmp_path_factory) -> Iterator[LocalS3]:
    """A server; processes of these tests have its settings by HADOOP_CONF_DIR, and the login by environment."""
    folder = tmp_path_factory.mktemp("s3")
    with LocalS3(ensure_s3(home), folder / "server") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLUICE_JARS", str(class_paths(home, folder / "class-paths")))
        entries = "".join(
            f"<property><name>{k}</name><value>{v}</value></property>" for k, v in server.settings.items()
        )
        (folder / "core-site.xml").write_text(f"<configuration>{entries}</configuration>")
        patch.setenv("HADOOP_CONF_DIR", str(folder))
        login = {f"spark.hadoop.{name}": value for name, value in server.login.items()}
        patch.setenv(PRIVATE, json.dumps({"conf": login}))
        patch.setenv(
            "AWS_ACCESS_KEY_ID", server.key
        )  # what was not started for one pipeline has it as AWS's clients do
        patch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
        yield server


@pytest.fixture(scope="module")
def s3_jvm(s3) -> Iterator[SharedJvm]:
    shared = SharedJvm()
    yield shared
    shared.close()


@pytest.fixture(scope="module")
def s3_drivers(s3, tmp_path_factory) -> Iterator[Drivers]:
    pool = Drivers(tmp_path_factory.mktemp("drivers"))
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def hdfs(home: SluiceHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHdfs]:
    with LocalHdfs(ensure_hdfs(home), tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture(scope="module")
def java_jars(home: SluiceHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """H2's and Derby's jars, while a file's tests have their drivers on the class paths, as a user puts them there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLUICE_JARS", str(with_drivers(home, tmp_path_factory.mktemp("jars") / "class-paths")))
        yield ensure_databases(home)


@pytest.fixture(scope="module")
def jvm_with_drivers(java_jars: Path) -> Iterator[SharedJvm]:
    shared = SharedJvm()
    yield shared
    shared.close()


@pytest.fixture(scope="module")
def spark_with_drivers(java_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    pool = Drivers(tmp_path_factory.mktemp("drivers"))
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def h2_server(
    java_jars: Path, jvm_with_drivers: SharedJvm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[H2Server]:
    with H2Server(java_jars, tmp_path_factory.mktemp("h2") / "data", jvm_with_drivers) as server:
        yield server


@pytest.fixture(scope="module")
def derby_server(
    java_jars: Path, jvm_with_drivers: SharedJvm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DerbyServer]:
    with DerbyServer(java_jars, tmp_path_factory.mktemp("derby") / "data", jvm_with_drivers) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresDatabase]:
    """A PostgreSQL server that runs for the whole session: tests take tables of their own."""
    lacks, programs = missing(), postgresql_programs()
    if lacks is not None or programs is None:
        pytest.skip(str(lacks))
    server = PostgreSql(programs)
    try:
        server.start()
        yield PostgresDatabase(server)
    finally:
        server.stop()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDatabase]:
    """A MariaDB server that runs for the whole session: tests take tables of their own."""
    with mariadb_server() as server:
        yield MariaDatabase(server)


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Readable:
    """Each database that the JDBC sink is tried with; those that aren't installed are skipped."""
    if request.param == "sqlite":
        return SqliteFile(tmp_path_factory.mktemp("sqlite") / "warehouse.db")
    found: Readable = request.getfixturevalue(request.param)
    found.drop_staging()  # the server is the session's: what another file's tests left is none of this one's
    return found


@pytest.fixture
def table(database: Readable, topic_name: Callable[[str], str]) -> Iterator[str]:
    """A table whose rows have a number and a time, both of the database's."""
    name = topic_name("h").replace("-", "_")
    database.run(f"CREATE TABLE {name} ({COLUMNS[database.name]})")
    yield name
    database.run(f"DROP TABLE {name}")


@contextmanager
def _made(database: Readable, name: str) -> Iterator[str]:
    database.run(f"CREATE TABLE {name} ({COLUMNS[database.name]})")
    yield name
    database.run(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture
def on_postgresql(postgresql: PostgresDatabase, topic_name: Callable[[str], str]) -> Iterator[str]:
    """The same on PostgreSQL."""
    with _made(postgresql, topic_name("h").replace("-", "_")) as name:
        yield name


@pytest.fixture
def on_mariadb(mariadb: MariaDatabase, topic_name: Callable[[str], str]) -> Iterator[str]:
    """The same on MariaDB."""
    with _made(mariadb, topic_name("h").replace("-", "_")) as name:
        yield name


@pytest.fixture(scope="module")
def preparing() -> Iterator[PostgresDatabase]:
    """A PostgreSQL server of a file's own, which may be killed, and on which transactions can be prepared."""
    lacks, programs = missing(), postgresql_programs()
    if lacks is not None or programs is None:
        pytest.skip(str(lacks))
    server = PostgreSql(programs)
    try:
        server.start()
        server.run("ALTER SYSTEM SET max_prepared_transactions = 5")
        server.kill()
        server.restart()
        yield PostgresDatabase(server)
    finally:
        server.stop()


@pytest.fixture
def make_jdbc(
    make_flow: Callable[..., Flow], database: Readable, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Table]]:
    """Makes a pipeline that loads a table of its own in a database: `make_jdbc(2, section={"auto_evolve": True})`."""
    for variable, value in database.environment().items():
        monkeypatch.setenv(variable, value)

    def made(partitions: int = 2, *, section: dict[str, Any] | None = None, **settings: Any) -> Table:
        return jdbc_table(make_flow(partitions, **settings), database, section)

    yield made
    database.drop_staging()  # the next test looks for its own


def _maker(folder: Path, bootstrap: str, jvm: SharedJvm, drivers: Drivers, name: Callable[[str], str]) -> Any:
    def make(partitions: int = 2, **settings: Any) -> Flow:
        flow = Flow(folder, bootstrap, jvm, drivers, name("t"), **settings)
        if partitions:
            flow.create_topic(partitions)
        return flow

    return make


@pytest.fixture
def make_flow(
    tmp_path: Path, bootstrap: str, shared_jvm: SharedJvm, drivers: Drivers, topic_name: Callable[[str], str]
) -> Callable[..., Flow]:
    """Makes a pipeline of its own: `make_flow(partitions=2, sink__hudi__operation="upsert")`."""
    maker: Callable[..., Flow] = _maker(tmp_path, bootstrap, shared_jvm, drivers, topic_name)
    return maker


@pytest.fixture(scope="module")
def make_flow_of_module(
    tmp_path_factory: pytest.TempPathFactory,
    bootstrap: str,
    shared_jvm: SharedJvm,
    drivers: Drivers,
    topic_name: Callable[[str], str],
) -> Callable[..., Flow]:
    """The same, for tests that look at one pipeline one after the other."""
    folder = tmp_path_factory.mktemp("flow")
    maker: Callable[..., Flow] = _maker(folder, bootstrap, shared_jvm, drivers, topic_name)
    return maker


@pytest.fixture
def asked(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> LocalRegistry:
    """The registry, as the pipelines of this test know it."""
    monkeypatch.setenv(VARIABLE, registry.url)
    registry.requests()
    return registry


@pytest.fixture
def client(registry: LocalRegistry) -> Iterator[SchemaRegistryClient]:
    """With which producers register their schemas."""
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.fixture(scope="module")
def west(home, tmp_path_factory):
    """A second cluster, beside that of all tests."""
    with LocalBroker(home, tmp_path_factory.mktemp("west") / "broker", cluster_id="c2x1aWNlLXdlc3QtMDAwMg") as broker:
        yield broker.bootstrap


@pytest.fixture
def make_streams(make_flow, bootstrap, west):
    """A pipeline over two clusters that both have a topic of that name, which holds the test's own records."""

    def make(**settings) -> Streams:
        return Streams(make_flow(partitions=1, **settings), east=bootstrap, west=west)

    return make


@pytest.fixture
def make_topics(
    make_flow: Callable[..., Flow], bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Topics]:
    """Makes a pipeline that writes a topic of its own: `make_topics(2, section={"partitioner": "same"})`."""
    for variable, value in target_environment(bootstrap).items():
        monkeypatch.setenv(variable, value)

    def made(
        partitions: int = 2, *, section: dict[str, Any] | None = None, targets: int = 2, **settings: Any
    ) -> Topics:
        return topics_of(make_flow(partitions, **settings), bootstrap, targets, section)

    return made
