"""Secret settings of Spark and Hudi: they come from the Spark connection, and travel by environment alone.

Many people read a pipeline file, its options are in START-COMMIT, and `--conf` is on a command line. So a secret is in
none of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from sluice.errors import ActionRequiredError
from sluice.untrusted import json_of

VARIABLE = "SLUICE_SPARK_PRIVATE"
_HADOOP = "spark.hadoop."


@dataclass(frozen=True)
class PrivateSettings:
    """Settings that go round pipeline file, command line and messages; they never show in a repr.

    Attributes:
        conf: Spark's (`spark.*`), set by the driver itself before its context starts.
        hudi: Hudi's (`hoodie.*`), for the coordinator's client and the writers.
    """

    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    hudi: Mapping[str, str] = field(default_factory=dict, repr=False)

    def to_environment(self) -> dict[str, str]:
        """The settings as an environment variable, nothing where there are none."""
        return {VARIABLE: json.dumps(asdict(self))} if self.conf or self.hudi else {}

    @classmethod
    def from_environment(cls) -> PrivateSettings:
        """Read what `to_environment` wrote.

        Raises:
            ActionRequiredError: the variable can't be read; its text shows nowhere.
        """
        text = os.environ.get(VARIABLE)
        if not text:
            return cls()
        try:
            given = json_of(text)
            return cls(dict(given.get("conf", {})), dict(given.get("hudi", {})))
        except (ValueError, AttributeError, TypeError):
            raise ActionRequiredError(
                f"The variable {VARIABLE} is not JSON of the form " + '{"conf": {…}, "hudi": {…}}.',
                next_step="correct it in this process's environment.",
            ) from None


def hadoop_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """The write jobs' Hadoop settings, which are the coordinator's too: both use the same file system.

    Args:
        conf: the pipeline's settings of Spark (`write.conf`).

    Raises:
        ActionRequiredError: the private ones can't be read.
    """
    conf = {**conf, **PrivateSettings.from_environment().conf}
    return {name.removeprefix(_HADOOP): value for name, value in conf.items() if name.startswith(_HADOOP)}
