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
from sluice.hoodie_options import PAGE, not_an_operators
from sluice.untrusted import json_of

VARIABLE = "SLUICE_SPARK_PRIVATE"
_HADOOP = "spark.hadoop."


@dataclass(frozen=True)
class PrivateSettings:
    """Settings that go round pipeline file, command line and messages; they never show in a repr.

    Attributes:
        conf: Spark's (`spark.*`), set by the driver itself before its context starts.
        hudi: Hudi's (`hoodie.*`), for the coordinator's client and the writers. They win over a pipeline file's, and
            not over what the commit depends on.

    Raises:
        ActionRequiredError: an option of Hudi's is none that a connection may set; its value shows nowhere.
    """

    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    hudi: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        refused = not_an_operators(self.hudi)
        if refused:
            raise ActionRequiredError(
                "The Spark connection has options of Hudi's that it may not set: "
                + "; ".join(f"{name} {why}" for name, why in sorted(refused.items()))
                + ".",
                next_step="remove them from `hudi` in its extra field, which takes secrets, log-ins of catalogs, and "
                f"the options that {PAGE} lists.",
            )

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
