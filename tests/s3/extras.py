"""Code of the product in a process that has the extras s3, msk and glue, as a worker on AWS has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sluice import runtime

_CALL = """
import importlib, json, sys
from sluice.errors import SluiceError
module, function, arguments = json.loads(sys.argv[1])
try:
    found = {"returned": repr(getattr(importlib.import_module(module), function)(*arguments))}
except SluiceError as error:
    found = {"raised": type(error).__name__, "says": str(error)}
print(json.dumps(found))
"""


def called_with_extras(extras: Path, module: str, function: str, *arguments: Any) -> dict[str, str]:
    """What a function returns, as `returned`, or the error that it raises: its class, as `raised`, and what it `says`.

    Args:
        extras: what `ensure_extras` returns.
        module: where the function is.
        function: its name.
        arguments: as JSON has them.
    """
    path = os.pathsep.join([str(extras), str(runtime.packages()), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", _CALL, json.dumps([module, function, arguments])]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found
