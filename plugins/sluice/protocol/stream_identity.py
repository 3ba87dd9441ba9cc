"""The identity of the streams' clusters, by Kafka's own ids: ambiguous clusters are refused. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sluice.errors import ActionRequiredError
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.offsets import Checkpoint
from sluice.protocol.streams import Followed


def refuse_two_names(present: Mapping[str, str | None], table: str) -> None:
    """Refuse a mapping that has one cluster under two names: its records would be read twice.

    Args:
        present: the clusters' own ids by the mapping's names.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: it has.
    """
    names: dict[str, str] = {}
    for name, cluster_id in sorted(present.items()):
        if cluster_id and names.setdefault(cluster_id, name) != name:
            raise ActionRequiredError(
                f"The mapping has one cluster under two names, {names[cluster_id]} and {name}.",
                next_step="give it one name in what the metadata service says; nothing was begun.",
                table=table,
                cluster_id=cluster_id,
            )


def refuse_lost_address(known: KnownStreams, present: Mapping[str, str | None], table: str) -> None:
    """Refuse to drain a cluster that is not where it was any more.

    Args:
        known: the mapping of the last commit.
        present: the own ids of clusters that the mapping has ceased to name, by their names.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: another cluster is there.
    """
    for name, found in sorted(known.lost(present).items()):
        raise ActionRequiredError(
            "A cluster that the mapping has ceased to name, and that is to be read to its end, isn't where it was.",
            next_step="have its connection lead to it again; or take `moved_from` out where it names "
            "it, and set the source's `on_removed` to drop for one run.",
            table=table,
            cluster=name,
            connection=known.clusters[name].connection,
            found=found,
        )


def refuse_copied_ids(followed: Followed, own: Collection[str], table: str) -> None:
    """Refuse to decode copies by another registry than their originals': a mirror copies schema ids unchanged.

    Args:
        followed: the interval's reads.
        own: the registries of the pipeline file, for clusters without a registry.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: a topic is moved by a mirror to a cluster with another registry.
    """
    for log, move in sorted(followed.moves.items(), key=lambda item: item[0]):
        old, new = followed.clusters.get(move.old[0]), followed.clusters.get(log[0])
        if move.mirror == "none" or old is None or new is None:
            continue
        if any((old.registry or one) != (new.registry or one) for one in own):
            raise ActionRequiredError(
                "A topic is moved by a mirror, which copies the ids of schemas as they are, to a cluster with another "
                "schema registry.",
                next_step="name the old cluster's `registry` for the new one too, if producers register there; or move "
                "the topic without a mirror (`mirror: none`).",
                table=table,
                cluster=log[0],
                topic=log[1],
                registry=new.registry or ", ".join(sorted(own)),
                moved_from=move.old[0],
                registry_there=old.registry or ", ".join(sorted(own)),
            )


def refuse_shared_names(known: KnownStreams, table: str) -> None:
    """Refuse to read topics that have the same name in rows: a table that was moved once has rows of two clusters.

    Args:
        known: with the clusters' ids and prefixes.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: two clusters have such topics.
    """
    names: dict[str, str] = {}
    for (cluster, topic), _ in known.items():
        if (known.ids.get(cluster) or cluster) not in known.prefixes:
            continue  # it doesn't answer, so nothing of it is read
        name = known.row_topic(topic, cluster, known.ids.get(cluster))
        if names.setdefault(name, cluster) != cluster:
            raise ActionRequiredError(
                f"The table has rows of the topic {topic} from two clusters, {names[name]} and {cluster}, which it "
                "can't tell apart.",
                next_step="load the streams into a new table.",
                table=table,
                topic=topic,
            )


def refuse_unknown_ids(checkpoint: Checkpoint, present: Collection[str], table: str) -> None:
    """Refuse to follow streams if the cluster of the table's positions is ambiguous.

    Args:
        checkpoint: the table's checkpoint, with each cluster under its present name.
        present: the names that clusters have now.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: a cluster that no mapping names has positions and no id, so it may be any of those.
    """
    for name, known in checkpoint.clusters.items():
        if name not in present and known.cluster_id is None and known.is_known:
            raise ActionRequiredError(
                "It isn't known which cluster the table was loaded from, so it can't be identified among those of the "
                "mapping.",
                next_step=f"run one interval of the same topics without `streams`, which notes the cluster's id; or "
                f"call the cluster {name} in the mapping.",
                table=table,
                cluster=name,
            )
