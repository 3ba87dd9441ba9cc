"""Spark's application to fill its class-data-sharing archive: one participant after the other in one JVM."""

from __future__ import annotations

import json
import sys

from sluice.participant.launch.applications import write_range

for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    if write_range.main():
        sys.exit(1)
