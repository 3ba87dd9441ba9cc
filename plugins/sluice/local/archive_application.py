"""Spark's application to fill its class-data-sharing archive: one participant after the other in one JVM."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sluice.local.home import project_root

sys.path.insert(0, str(Path(project_root()) / "spark_jobs"))

import write_range  # the jobs' own entry point, found by the line above

for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    if write_range.main():
        sys.exit(1)
