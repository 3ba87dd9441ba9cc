"""Checks that docs/openapi.json is what the versioned read API says of itself; with `--draw` writes it there.

Once an answer has a field, version 1 keeps it: the check also fails where the file had one that is gone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FILE = Path(__file__).parents[1] / "docs" / "openapi.json"


def made() -> dict[str, Any]:
    """The schema; Airflow is imported for it, in a separate folder."""
    with TemporaryDirectory() as folder:
        os.environ |= {"AIRFLOW_HOME": folder, "_AIRFLOW_PROCESS_CONTEXT": "server"}
        from sluice.page.service import Page
        from sluice.page.v1 import make_v1

        return make_v1(Page()).openapi()


def fields(schema: dict[str, Any]) -> set[str]:
    """All addresses, and all fields of answers."""
    models = schema.get("components", {}).get("schemas", {})
    return {*schema["paths"], *(f"{name}.{field}" for name, m in models.items() for field in m.get("properties", {}))}


def wrong() -> str:
    """What is wrong with the file; nothing where it is right, or was written."""
    schema = made()
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    written = FILE.read_text() if FILE.exists() else ""
    gone = fields(json.loads(written)) - fields(schema) if written else set()
    if gone:
        return f"version 1 keeps what it has, and these are gone: {', '.join(sorted(gone))}"
    if sys.argv[1:] == ["--draw"]:
        FILE.write_text(text)
    elif text != written:
        return "docs/openapi.json is not of this code; run: python tools/openapi.py --draw"
    return ""


if __name__ == "__main__":
    sys.exit(wrong() or 0)
