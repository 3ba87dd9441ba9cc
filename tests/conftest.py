"""What tests of every kind share: the project's jars, and one embedded broker for each worker of xdist."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import psutil
import pytest
import structlog

from sluice.local.broker import LocalBroker
from sluice.local.home import SluiceHome
from sluice.local.jars import ensure_jars
from sluice.logs import log

from .processes import make_many_cheap
from .thorough import is_thorough

if TYPE_CHECKING:
    from .registry import LocalRegistry

make_many_cheap()

# Nobody kills the shared broker, so that nothing waits for its session to expire: it may keep still. With these it
# takes half as much CPU while tests are busy elsewhere, which is most of the time.
_CALM = {
    "metadata.max.idle.interval.ms": "0",  # by default a record twice a second says that nothing has happened
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "60000",
}


_MANY_FILES = 150  # a shell of macOS lets a process have 256


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, metavar="FILE", help="append what each test costs: seconds, CPU, JVMs")
    parser.addoption("--thorough", action="store_true", help="run the cells that are left out else, and no others")
    parser.addoption("--minutes", type=float, help="skip the tests that would begin later; the shortest files first")
    parser.addoption("--all-cells", action="store_true", help="try each remedy on each table in each circumstance")


def pytest_configure(config: pytest.Config) -> None:
    # Nothing is wrong with an example that takes long: the machine has other work.
    unhurried = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.register_profile("unhurried", unhurried)
    hypothesis.settings.load_profile("unhurried")
    if config.getoption("--minutes") is not None:
        from .minutes import Minutes

        config.pluginmanager.register(Minutes(config), "minutes")
    file = config.getoption("--costs")
    if file is not None:
        from .costs import Costs

        config.pluginmanager.register(Costs(file.absolute(), worker=hasattr(config, "workerinput")), "costs")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, the longest file first; else as xdist does it."""
    from .costs import LongestFirst

    return LongestFirst(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whoever asks for the broker carries the marker `kafka`, so that `-m "not kafka"` leaves none out.

    Of what takes long `make test` runs some, and `make test-thorough` the others: see tests/thorough.py.
    """
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
    if config.getoption("--all-cells"):
        return
    wanted = config.getoption("--thorough")
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        chosen[is_thorough(item) == wanted].append(item)
    items[:] = chosen[True]
    if chosen[False]:
        config.hook.pytest_deselected(items=chosen[False])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Have the story on the test's own output: a test before may have had it on an output that is closed by now.

    Importing Airflow sets structlog up so, and so does each command of the command line. No fixture: one of a module is
    made before those of its tests.
    """
    structlog.reset_defaults()
    vars(log).pop("bind", None)  # a logger that was told to stay as it was first used


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Let Kafka's clients go that an exception's traceback still holds, before a worker has no more files to open.

    Each has four pipes and its sockets. tenacity keeps the last attempt's exception beside the frame that it came
    through, so only Python's collector finds them, which seldom comes round in a process with many objects.
    """
    if psutil.Process().num_fds() > _MANY_FILES:
        gc.collect()


@pytest.fixture(scope="session")
def home() -> SluiceHome:
    """The project's own home, for its jars. A test's data belong in `tmp_path`."""
    home = SluiceHome.from_env()
    ensure_jars(home)
    return home


@pytest.fixture(scope="session")
def broker(home: SluiceHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker that runs for the whole session: tests take topics of their own, and leave it running."""
    with LocalBroker(home, tmp_path_factory.mktemp("broker"), settings=_CALM) as running:
        yield running


@pytest.fixture(scope="session")
def registry(home: SluiceHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    """A schema registry that runs for the whole session: tests take subjects of their own."""
    from .registry import LocalRegistry, ensure_registry

    with LocalRegistry(ensure_registry(home), tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session in the test's own process, with the write jobs' settings and jars."""
    from .spark import session

    with session() as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(broker: LocalBroker) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def topic_name() -> Callable[[str], str]:
    """Makes a name that no other test has: `topic_name("orders")`."""
    return lambda prefix="topic": f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def create_topic(bootstrap: str, topic_name: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic of its own and returns its name: `create_topic("orders", partitions=3)`.

    Retention doesn't take records that a test dates years ago.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    def create(prefix: str = "topic", partitions: int = 1, **config: str) -> str:
        name = topic_name(prefix)
        settings = {"retention.ms": "-1", **{k.replace("_", "."): v for k, v in config.items()}}
        topic = NewTopic(name, partitions, 1, config=settings)
        admin = AdminClient({"bootstrap.servers": bootstrap})  # its futures fail once it is collected
        admin.create_topics([topic])[name].result(30)
        return name

    return create
