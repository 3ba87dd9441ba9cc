"""The one exception of the embedded runtime."""

from __future__ import annotations


class LocalRuntimeError(RuntimeError):
    """Something on this machine stops the embedded runtime.

    Args:
        what: What went wrong, as one sentence.
        next_step: What the reader can do about it.
        detail: Output of the failing process, shown below both.
    """

    def __init__(self, what: str, *, next_step: str, detail: str = "") -> None:
        self.what = what
        self.next_step = next_step
        self.detail = detail
        super().__init__("\n".join(part for part in (what, f"Next step: {next_step}", detail) if part))
