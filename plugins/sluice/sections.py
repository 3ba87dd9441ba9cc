"""What every section of a pipeline file is built from: the base class, and kinds of values that users write."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import InitErrorDetails, ValidationError

from sluice.redact import is_secret_option
from sluice.untrusted import compiled

_UNITS = {"s": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(s|seconds?|m|min|minutes?|h|hours?|d|days?)\s*$")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_PREFIX = "SLUICE_"
# They hold credentials. Whatever a pipeline file names is shown: in logs, in messages, on the page.
_SECRET = (
    "SLUICE_KAFKA_",
    "SLUICE_SCHEMA_REGISTRY",
    "SLUICE_CONTROL_SECRET",
    "SLUICE_SPARK_PRIVATE",
    "SLUICE_SOURCE_CONNECTIONS",
)


def words_of(problem: Mapping[str, Any]) -> str:
    """What one of a ValidationError's errors says, without pydantic's words around a validator's."""
    return str(problem["msg"]).removeprefix("Value error, ")


def parse_duration(value: Any) -> Any:
    """`30 seconds`, `5 minutes`, `1 hour` or `2 days` as a timedelta; anything else is left for pydantic.

    Raises:
        ValueError: it is longer than a timedelta can be.
    """
    match = _DURATION.match(value) if isinstance(value, str) else None
    if match is None:
        return value
    unit = match.group(2)
    try:
        return timedelta(seconds=float(match.group(1)) * _UNITS.get(unit, _UNITS.get(unit.rstrip("s"), 1)))
    except OverflowError:
        raise ValueError("this is longer than any time that can be waited for") from None


def duration_in_words(time: timedelta) -> str:
    """A duration as a pipeline file has it, in its largest whole unit: `90 seconds`, `1 hour`."""
    seconds = time.total_seconds()
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds and seconds % unit == 0:
            number = int(seconds // unit)
            return f"{number} {name}" if number == 1 else f"{number} {name}s"
    return f"{seconds:g} seconds"


def expand(value: str) -> str:
    """A text with each `${SLUICE_NAME}` replaced from the environment, `${SLUICE_NAME:-default}` where it isn't set.

    Raises:
        ValueError: a variable isn't set, or may not be used here: every reader of the pipeline sees the result.
    """

    def replace(match: re.Match[str]) -> str:
        if not match.group(1).startswith(_PREFIX) or match.group(1).startswith(_SECRET):
            raise ValueError(
                f"the environment variable {match.group(1)} may not be named here, since the path is shown to others: "
                f"give its value to a variable that begins with {_PREFIX}, such as {_PREFIX}LAKE, and name that one"
            )
        found = os.environ.get(match.group(1), match.group(2))
        if found is None:
            raise ValueError(
                f"the environment variable {match.group(1)} is not set; set it, or write ${{{match.group(1)}:-default}}"
            )
        return found

    return _VARIABLE.sub(replace, value)


def _absolute(value: str) -> str:
    if "://" in value:
        return value.rstrip("/")
    if not value.startswith("/"):
        raise ValueError("must be an absolute path or a URI such as s3a://bucket/table or hdfs:///table")
    return f"file://{value.rstrip('/')}"


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
AtLeastASecond = Annotated[timedelta, Field(ge=timedelta(seconds=1)), BeforeValidator(parse_duration)]
Expanded = Annotated[str, AfterValidator(expand)]
TablePath = Annotated[str, AfterValidator(expand), AfterValidator(_absolute)]
OneOrMore = Annotated[tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)]


def _as_text(value: Any) -> Any:
    """YAML's numbers and booleans as the text that Spark and Hudi read; lists and mappings are left to be refused."""
    if not isinstance(value, dict):
        return value
    return {
        name: str(v).lower() if isinstance(v, bool) else v if isinstance(v, dict | list) else str(v)
        for name, v in value.items()
    }


Options = Annotated[dict[str, str], BeforeValidator(_as_text)]


def scalar_or_mapping(value: Any) -> str:
    """Which branch a value is of that may be one value or a section, for pydantic: so only that one's faults show."""
    return "mapping" if isinstance(value, dict | Section) else "scalar"


PRIVATE_HUDI = 'the Spark connection\'s extra field, as {"hudi": {"hoodie.…": "…"}}'
PRIVATE_SPARK = 'the Spark connection\'s extra field, as {"conf": {"spark.…": "…"}}'
PRIVATE_KAFKA = 'the Kafka connection\'s extra field, as {"java": {"…": "…"}}'
_NO_SECRET = re.compile(r"^(|true|false|\d+)$", re.IGNORECASE)


def refuse_secrets(options: Mapping[str, str], instead: str) -> None:
    """Check that none of the options is a secret, by its name.

    Raises:
        ValueError: one is; its value shows nowhere.
    """
    named = sorted(k for k, v in options.items() if is_secret_option(k) and not _NO_SECRET.match(str(v)))
    if named:
        raise ValueError(
            f"{', '.join(named)}: a secret must not be in a pipeline file, which others read; it would show in "
            f"messages, logs and command lines. Put it into {instead}"
        )


class Section(BaseModel):
    """One section of a pipeline file. Its docstrings become the JSON Schema's descriptions."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_by_name=True, validate_by_alias=True
    )


def is_pattern(pattern: str) -> str:
    """A text that is a regular expression.

    Raises:
        ValueError: it isn't.
    """
    compiled(pattern)
    return pattern


def require_hoodie_names(options: Mapping[str, str]) -> None:
    """Check that options are Hudi's.

    Raises:
        ValueError: a name isn't `hoodie.*`.
    """
    strange = [name for name in options if not name.startswith("hoodie.")]
    if strange:
        raise ValueError(f"options take hoodie.* names only, not {', '.join(strange)}")


def refuse_each(key: str, refusals: Mapping[str, str | None]) -> None:
    """Refuse settings of one key of a section, each at its own place in the file.

    Args:
        key: the key that has the settings.
        refusals: by setting, the reason to refuse it; None if it is taken.

    Raises:
        ValidationError: one has a reason; no value shows.
    """
    wrong = [
        InitErrorDetails(type="value_error", loc=(key, name), input={}, ctx={"error": ValueError(why)})
        for name, why in refusals.items()
        if why is not None
    ]
    if wrong:
        raise ValidationError.from_exception_data(key, wrong)
