"""Reads JSON from any writer with access to a topic, within a bound on work. Pure.

A bound on bytes isn't enough: some bytes of JSON are a list or an object in memory, and an error that quotes its input
makes objects of all of it. So the members of an object are taken apart as bytes, unknown members cost nothing, and
known ones are counted before anything is made of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema

MOST_VALUES = 4_000_000
"""Values of a message; 64 MiB of write stats are some 2.5 million."""
MOST_CONTAINERS = 500_000
"""Lists and objects among them; 64 MiB of write stats are some 280,000."""

_Model = TypeVar("_Model", bound=BaseModel)
_SEVERAL = ("dict", "frozenset", "list", "set", "tuple")
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_WHOLE = re.compile(r"[0-9]{1,19}")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _failing_fast(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_failing_fast(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    quick = {name: _failing_fast(one) for name, one in schema.items()}
    return quick | {"fail_fast": True} if schema.get("type") in _SEVERAL else quick


class Untrusted(BaseModel):
    """A frozen model of what others may have written; members that it doesn't name are those of other releases.

    Its lists are read up to their first wrong element: each error costs a hundred times its element.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's generated schema, with lists that fail fast."""
        schema: CoreSchema = _failing_fast(handler(source))
        return schema


def json_of(text: str | bytes) -> Any:
    """JSON that others may have written, of a size that its reader has bounded.

    Raises:
        ValueError: it is no JSON in UTF-8, is nested too deeply, or has half of a character, which no file and no
            answer could hold; no other error, whatever the text is.
    """
    text = text if isinstance(text, str) else text.decode()
    try:
        found = json.loads(text)
        if _HALF.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return found


def first_mistake(error: ValidationError, of: str) -> str:
    """The first mistake of others' texts in words, without the texts themselves.

    Args:
        error: pydantic's error.
        of: the whole, as the place of a mistake that is in none of its parts.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or of}: {first['msg']}"


def whole(text: str) -> int | None:
    """A whole number in digits; None if the text is none, or has more digits than any offset or number of bytes.

    Python refuses to convert more than some thousand digits, with an error that says nothing of where they are.
    """
    return int(text) if _WHOLE.fullmatch(text) else None


def compiled(pattern: str) -> re.Pattern[str]:
    """A regular expression.

    Raises:
        ValueError: it is none of Python's.
    """
    try:
        return re.compile(pattern)
    except RecursionError:
        raise ValueError("is no regular expression: it is nested too deeply") from None
    except (re.error, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from error


def members(value: bytes) -> dict[str, bytes]:
    """The members of a JSON object, each as unparsed JSON.

    Raises:
        ValueError: it is no JSON, no object, or nested too deeply.
    """
    try:
        return {name: bytes(raw) for name, raw in _MEMBERS.decode(value).items()}
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def require_within_bounds(texts: Iterable[bytes]) -> None:
    """Check that JSON has no more values than the largest message.

    Brackets and commas are counted, also inside of texts: at least as many as there are values.

    Raises:
        ValueError: it has.
    """
    containers = commas = 0
    for text in texts:
        containers += text.count(b"[") + text.count(b"{")
        commas += text.count(b",")
    if containers > MOST_CONTAINERS or containers + commas > MOST_VALUES:
        raise ValueError(
            f"it has {containers} lists and objects and {commas} commas, more than the {MOST_CONTAINERS} and "
            f"{MOST_VALUES} of the largest message"
        )


def model_of(kind: type[_Model], fields: dict[str, bytes]) -> _Model:
    """A model from the members of an object; unknown ones are left out.

    Raises:
        ValueError: a member is missing or wrong, or there is more in it than a message has.
    """
    known = {name: fields[name] for name in kind.model_fields if name in fields}
    missing = [name for name, field in kind.model_fields.items() if field.is_required() and name not in known]
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing")
    require_within_bounds(known.values())
    text = b",".join(b'"%s":%s' % (name.encode(), raw) for name, raw in known.items())
    try:
        return kind.model_validate_json(b"{%s}" % text)
    except (ArithmeticError, LookupError, RecursionError, TypeError, AttributeError) as error:
        # pydantic passes on whatever a validator raises beside ValueError, such as int() of an infinite number.
        raise ValueError(f"a value can't be read: {error!r}") from error
