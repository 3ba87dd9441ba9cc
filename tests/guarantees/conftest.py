"""Fixtures of the tests that run whole intervals: real broker, real Spark, real Hudi, processes that really die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from sluice.registry.config import VARIABLE

from ..registry import LocalRegistry
from .harness import Drivers, Flow, SharedJvm


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One file's tests run in one worker, where they share a broker, a JVM and a Spark driver."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
            item.add_marker(pytest.mark.spark)


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
