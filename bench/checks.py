"""Whether tables hold what was produced, as a fresh Spark reader sees them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.participants import environment, spark_submit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.records import Expected

HERE = Path(__file__).resolve().parent
TAIL = 1500


class Checked(NamedTuple):
    """What is wrong with a table, None if nothing; and how long the reader took for it."""

    problem: str | None
    read_seconds: float | None


def check(
    tables: Sequence[tuple[str, Expected]],
    reads: str,
    work: Path,
    master: str = "local[2]",
    driver_memory: str = "2g",
) -> list[Checked]:
    """Read all tables, by path or URL, in one separate session.

    Args:
        tables: where each is, and what it must hold.
        reads: the format in which they are read.
        work: where the reader's log goes.
        master: Spark's master.
        driver_memory: of the reader's driver.
    """
    out = work / "checked.json"
    out.unlink(missing_ok=True)
    arguments = (reads, str(out), *(place for place, _ in tables))
    with (work / "check.log").open("ab") as log:
        subprocess.run(
            spark_submit(HERE / "check_rows.py", *arguments, master=master, driver_memory=driver_memory),
            env=environment(),
            stdout=log,
            stderr=log,
            check=False,
        )
    if not out.exists():
        told = (work / "check.log").read_text(errors="replace")[-TAIL:]
        return [Checked(f"the table cannot be read; check.log ends:\n{told}", None)] * len(tables)
    seen = json.loads(out.read_text())
    return [Checked(_problem(one, wanted), one["read_seconds"]) for one, (_, wanted) in zip(seen, tables, strict=True)]


def _problem(seen: dict[str, int], wanted: Expected) -> str | None:
    if (seen["rows"], seen["ids"], seen["volume"]) == (wanted.rows, wanted.rows, wanted.volume):
        return None
    return (
        f"the table has {seen['rows']:,} rows, {seen['ids']:,} ids, volume {seen['volume']:,}; "
        f"expected are {wanted.rows:,} rows and ids, volume {wanted.volume:,}"
    )
