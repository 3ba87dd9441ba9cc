"""A pipeline that was made of a connector, as its file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from sluice.connect.build import Imported


def text_of(made: Imported, data: Mapping[str, Any] | None = None, by: str = "Made by `sluice import-connect`") -> str:
    """The file: a head with its origin, the keys not honoured and the remaining steps, and the pipeline's keys.

    Args:
        made: the import's result.
        data: the file's content, where it differs from the result's.
        by: what wrote it.
    """
    head = [f"{by} of the connector {made.connector.name}: {made.what}."]
    others = [one for one in made.findings if one.verdict in ("differs", "not honoured")]
    if others:
        head.append("Not as in Kafka Connect:")
        head += [f"  {one.key}: {one.what}" for one in others]
    if made.steps:
        head.append("Left to do:")
        head += [f"  {number}. {step}" for number, step in enumerate(made.steps, 1)]
    keys = yaml.safe_dump(dict(data or made.pipeline or {}), sort_keys=False, allow_unicode=True, width=120)
    return (
        "".join(
            f"# {' '.join(line.split()) if not line.startswith('  ') else '  ' + ' '.join(line.split())}\n"
            for line in head
        )
        + keys
    )
