"""Prints what extras of pyproject.toml ask for, one a line: `make lock` resolves those of AWS by themselves."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main() -> int:
    """Print the requirements of the extras that the command line names."""
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    sys.stdout.writelines(f"{one}\n" for one in sorted({one for name in sys.argv[1:] for one in extras[name]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
