"""Checks that the pages with lists of allowed settings say what the code allows; with `--draw` writes it there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import fill

from sluice import hoodie_options, kafka_options

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- settings -->\n", "<!-- /settings -->\n"


def of_hudi() -> Iterator[str]:
    """The options of Hudi's that a pipeline file may set, by what they are about."""
    for title, names in hoodie_options.GROUPS.items():
        yield f"**{title}**"
        yield ""
        yield from (_row(name, hoodie_options.VALUES.get(name, ("", ""))[1]) for name in names)
        yield ""
    yield "**With one value**, which may be written down"
    yield ""
    yield from (f"- `{name}`: `{value}`" for name, value in sorted(hoodie_options.FIXED.items()))


def of_the_java_client() -> Iterator[str]:
    """The settings of Kafka's Java client that a pipeline file and a connection may set."""
    values = {name: " or ".join(f"`{value}`" for value in taken) for name, taken in kafka_options.VALUES.items()}
    values["sasl.jaas.config"] = "one entry of the login modules below"
    values[kafka_options.TOKEN_URL] = "an `https:` or `http:` address"
    yield "**How it reads**: in `write.kafka_options`, and under `java`"
    yield ""
    yield from (_row(name, values.get(name, "")) for name in sorted(kafka_options.READING))
    yield ""
    yield "**How it connects**: under `java` alone"
    yield ""
    yield from (_row(name, values.get(name, "")) for name in sorted(kafka_options.CONNECTING))
    yield ""
    yield "**Login modules** of `sasl.jaas.config`"
    yield ""
    yield from (f"- `{name}`" for name in kafka_options.LOGIN_MODULES)


def _row(name: str, values: str) -> str:
    row = f"- `{name}`{f': {values}' if values else ''}"
    return fill(row, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "hudi-options.md": of_hudi,
    "kafka-java-client.md": of_the_java_client,
}


def drawn(page: str) -> str:
    """The page's text with the present list."""
    before, _, rest = (DOCS / page).read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = "\n".join(PAGES[page]())
    return f"{before}{BEGIN}\n{lines}\n\n{END}{after}"


def main() -> int:
    """Compare, or draw."""
    old = [page for page in PAGES if (DOCS / page).read_text() != drawn(page)]
    for page in old:
        if "--draw" in sys.argv:
            (DOCS / page).write_text(drawn(page))
        else:
            print(f"docs/{page} isn't what the code allows; run: python tools/settings.py --draw")  # noqa: T201
    return 1 if old and "--draw" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
