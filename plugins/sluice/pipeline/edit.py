"""Changes one key of a pipeline file, and leaves every other line, comments included, as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence

import yaml

from sluice.pipeline.load import BOUNDS
from sluice.yaml_text import composed

_BOM = "\ufeff"


def with_value(text: str, keys: Sequence[str], value: str) -> str:
    """The file's text with another value under a path of keys; missing sections are added.

    Raises:
        ValueError: on the way is something that is no section, or the file is more than its bounds allow.
    """
    if text.startswith(_BOM):  # which positions don't count
        return _BOM + with_value(text.removeprefix(_BOM), keys, value)
    node = composed(text, BOUNDS)
    for depth, key in enumerate(keys):
        if not isinstance(node, yaml.MappingNode):
            raise ValueError(f"{'.'.join(keys[:depth]) or 'the file'} is no section")
        found = next(((k, v) for k, v in node.value if k.value == key), None)
        if found is None:
            return _inserted(text, node, keys[depth:], value)
        node = found[1]
    if node is None:
        raise ValueError("the file is empty")
    written = json.dumps(value, ensure_ascii=False)
    start, end = node.start_mark.index, node.end_mark.index
    kept = text[start:end]
    tail = kept[len(kept.rstrip()) :]  # a block's end is where the next key begins
    return text[:start] + written + tail + text[end:]


def _inserted(text: str, node: yaml.MappingNode, keys: Sequence[str], value: str) -> str:
    written = json.dumps(value, ensure_ascii=False)
    flow = written
    for key in reversed(keys[1:]):
        flow = f"{{{key}: {flow}}}"
    if node.flow_style:
        at = node.start_mark.index + 1
        more = ", " if node.value else ""
        return f"{text[:at]}{keys[0]}: {flow}{more}{text[at:]}"
    first = node.value[0][0].start_mark
    at = first.index
    return f"{text[:at]}{keys[0]}: {flow}\n{' ' * first.column}{text[at:]}"
