"""Metadata services: the built-in file, Flink's form of it, and users' own."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest

from sluice.connectors.metadata import GROUP, metadata_service
from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.mapping import Stream
from sluice.sources.kafka.options import Kafka

OURS = """
streams:
  orders:
    starting_offsets: latest
    clusters:
      east: {topics: orders, connection: kafka_east}
      west: {topics: [orders, returns], bootstrap_servers: "west:9092"}
  idle: {clusters: {}}
inactive: [west]
"""
FLINKS = """
- streamId: orders
  clusterMetadataList:
    - clusterId: east
      bootstrapServers: east:9092
      topics: [orders]
    - clusterId: west
      bootstrapServers: west:9092
      topics: [orders, returns]
"""


class Own:
    """A service of a user's."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def all_streams(self) -> dict[str, Stream]:
        return {"own": Stream.model_validate({"clusters": {"east": {"topics": [self.topic]}}})}

    def describe_streams(self, stream_ids: Collection[str]) -> dict[str, Stream]:
        return {name: stream for name, stream in self.all_streams().items() if name in stream_ids}

    def is_cluster_active(self, cluster: str) -> bool:
        return True


class HalfDone:
    """One that doesn't say all that it is asked."""

    def all_streams(self) -> dict[str, Stream]:
        return {}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "streams.yaml"
    path.write_text(OURS)
    return path


def test_a_file_says_where_streams_are(file):
    service = metadata_service("file", {"path": str(file)})
    streams = service.all_streams()
    assert sorted(streams) == ["idle", "orders"]
    assert streams["orders"].clusters["east"].topics == ("orders",)
    assert streams["orders"].clusters["west"].bootstrap_servers == "west:9092"
    assert (streams["orders"].starting_offsets, streams["idle"].clusters) == ("latest", {})
    assert sorted(service.describe_streams(["orders", "unknown"])) == ["orders"]
    assert (service.is_cluster_active("east"), service.is_cluster_active("west")) == (True, False)


def test_it_is_read_each_time(file):
    service = metadata_service("file", {"path": str(file)})
    service.all_streams()
    file.write_text("streams: {}")
    assert service.all_streams() == {}


def test_whether_clusters_are_active_is_of_the_same_answer(file):
    """With hundreds of clusters the file would else be read for each."""
    service = metadata_service("file", {"path": str(file)})
    service.all_streams()
    file.write_text("streams: {}")
    assert (service.is_cluster_active("east"), service.is_cluster_active("west")) == (True, False)


def test_flinks_form_is_read(file):
    file.write_text(FLINKS)
    service = metadata_service("file", {"path": str(file)})
    (stream,) = service.all_streams().values()
    assert {name: (c.bootstrap_servers, c.topics) for name, c in stream.clusters.items()} == {
        "east": ("east:9092", ("orders",)), "west": ("west:9092", ("orders", "returns")),
    }  # fmt: skip
    assert service.is_cluster_active("west")


def test_a_url_is_read(file):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=file.parent)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        service = metadata_service("file", {"path": f"http://127.0.0.1:{server.server_port}/{file.name}"})
        assert sorted(service.all_streams()) == ["idle", "orders"]
        server.shutdown()


def test_a_file_that_is_not_there_is_tried_again(tmp_path):
    with pytest.raises(RetryableError, match="can't be read just now"):
        metadata_service("file", {"path": str(tmp_path / "none")}).all_streams()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("streams: [", "not YAML"),
        ("topics: [a]", "KeyError"),
        ("streams: {orders: {clusters: {east: {topics: []}}}}", "orders.clusters.east"),
        ("streams: {orders: {clusters: {east: {topic: a}}}}", "orders.clusters.east"),
        ("- stream: orders", "KeyError"),
    ],
)
def test_a_file_that_says_nothing_of_use_is_for_a_person(file, text, what):
    file.write_text(text)
    with pytest.raises(ActionRequiredError, match=what):
        metadata_service("file", {"path": str(file)}).all_streams()


def test_a_users_own_service_is_named_by_its_class():
    service = metadata_service(f"{__name__}:Own", {"topic": "t"})
    assert service.all_streams()["own"].clusters["east"].topics == ("t",)


def test_a_service_of_an_installed_package_is_found_by_its_name(tmp_path, monkeypatch):
    """By its entry point, as an installer leaves it, and with the options of its section in a pipeline file."""
    info = tmp_path / "users_streams-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: users-streams\nVersion: 1.0\n")
    points = {"catalogue": f"{__name__}:Own", "broken": "users_broken:Service"}
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")
    (tmp_path / "users_broken.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    section = Kafka.model_validate({"streams": "own", "metadata": {"service": "catalogue", "topic": "t"}})
    settings = section.streams_settings
    assert settings is not None
    service = metadata_service(settings.service, settings.service_options)
    assert service.describe_streams(["own", "other"])["own"].clusters["east"].topics == ("t",)
    with pytest.raises(ActionRequiredError, match="RuntimeError: no licence"):
        metadata_service("broken", {})
    with pytest.raises(ActionRequiredError, match="broken, catalogue, file"):
        metadata_service("unknown", {})


def test_what_is_no_service_is_told():
    with pytest.raises(ActionRequiredError, match="it has no describe_streams, is_cluster_active"):
        metadata_service(f"{__name__}:HalfDone", {})


@pytest.mark.parametrize("name", ["none", "nowhere:Class", f"{__name__}:Other", f"{__name__}:Own"])
def test_a_service_that_can_not_be_made_is_told(name):
    with pytest.raises(ActionRequiredError, match="can't be made"):
        metadata_service(name, {})


@pytest.mark.parametrize("inactive", ["true", "east", "[1]"])
def test_inactive_is_a_list_of_names(tmp_path, inactive):
    """A plain name was read letter by letter, so that the cluster stayed active."""
    file = tmp_path / "streams.yml"
    file.write_text(f"streams: {{s: {{clusters: {{east: {{topics: [t]}}}}}}}}\ninactive: {inactive}\n")
    with pytest.raises(ActionRequiredError, match="metadata can't be read"):
        metadata_service("file", {"path": str(file)}).all_streams()
