"""The one exception of the embedded runtime, and how its commands report it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

LOCAL_EXTRA = "install the extra `local`: pip install 'sluice[local]', or `make install` in a checkout."
"""The next step where a package is missing that only the embedded runtime needs."""


class LocalRuntimeError(RuntimeError):
    """Something on this machine stops the embedded runtime.

    Args:
        what: What went wrong, as one sentence.
        next_step: The reader's next step.
        detail: Output of the failing process, shown below both.
    """

    def __init__(self, what: str, *, next_step: str, detail: str = "") -> None:
        self.what = what
        self.next_step = next_step
        self.detail = detail
        super().__init__("\n".join(part for part in (what, f"Next step: {next_step}", detail) if part))


@contextmanager
def told_in_short() -> Iterator[None]:
    """Ends the process with 1 and a message, not a stack trace, where something on this machine stops it."""
    try:
        yield
    except LocalRuntimeError as error:
        console = Console(stderr=True, highlight=False)
        console.print(error.what, markup=False, style="bold red")
        console.print(f"Next step: {error.next_step}", markup=False)
        if error.detail:
            console.print(error.detail, markup=False, style="dim")
        raise SystemExit(1) from None
