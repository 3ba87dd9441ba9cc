"""The options of Hudi's that a pipeline file may set are Hudi's, and rows and offsets are as without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zipfile import ZipFile

import pytest
from py4j.protocol import Py4JError

from sluice.hoodie_options import ALLOWED, EARLIER_NAMES, FIXED, VALUES, refusal

from .harness import Flow, SharedJvm

MULTI_WRITER = "hoodie.allow.multi.write.on.same.instant"  # Hudi's own name of it begins with `_.`
UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}


def options_of(shared: SharedJvm) -> Iterator[tuple[str, str | None, list[str]]]:
    """Name, default and earlier names of each option, as the classes of the installed Hudi declare them."""
    with shared() as jvm:
        lang = jvm.jvm.java.lang
        known = lang.Class.forName("org.apache.hudi.config.HoodieWriteConfig")
        with ZipFile(str(known.getProtectionDomain().getCodeSource().getLocation().getPath())) as jar:
            names = [name for name in jar.namelist() if name.startswith("org/apache/hudi/") and "Config" in name]
        for name in names:
            if not name.endswith(".class"):
                continue
            try:
                fields = lang.Class.forName(name.removesuffix(".class").replace("/", ".")).getDeclaredFields()
            except Py4JError:  # it extends a class of an engine that isn't here
                continue
            for field in fields:
                if str(field.getType().getSimpleName()) == "ConfigProperty":
                    field.setAccessible(True)
                    option = field.get(None)
                    found = option.defaultValue() if option.hasDefaultValue() else None
                    default = None if found is None else str(found).lower() if isinstance(found, bool) else str(found)
                    yield str(option.key()), default, [str(earlier) for earlier in option.getAlternatives()]


@pytest.fixture(scope="module")
def of_hudi(shared_jvm: SharedJvm) -> dict[str, tuple[str | None, list[str]]]:
    return {name: (default, earlier) for name, default, earlier in options_of(shared_jvm)}


def test_hudi_knows_each_listed_name_and_its_default_is_taken(of_hudi: dict[str, tuple[str | None, list[str]]]) -> None:
    assert len(of_hudi) > 500
    assert set(of_hudi) >= (ALLOWED | set(FIXED)) - {MULTI_WRITER}
    earlier = {old: name for name, (_, names) in of_hudi.items() for old in names}
    assert {old: name for old, name in earlier.items() if name in ALLOWED | set(FIXED)} == EARLIER_NAMES
    for name in ALLOWED:
        default, _ = of_hudi[name]
        assert default is None or refusal(name, default) is None, (name, default)
    classes = {name for name, (default, _) in of_hudi.items() if default and default.startswith("org.apache.hudi.")}
    assert classes & ALLOWED == {"hoodie.compaction.strategy"} & set(VALUES)  # a class by one of few names


@pytest.mark.parametrize("settings", [{}, pytest.param(UPSERT, marks=pytest.mark.thorough)], ids=["append", "upsert"])
def test_rows_and_offsets_are_as_without_them(
    make_flow: Callable[..., Flow], of_hudi: dict[str, tuple[str | None, list[str]]], settings: dict[str, str]
) -> None:
    """All at once, with the values that Hudi gives them: many are others than Sluice's own defaults."""
    given = {name: of_hudi[name][0] for name in sorted(ALLOWED) if of_hudi[name][0]}
    flow = make_flow(**settings, sink__hudi__options=given | dict(FIXED))
    for _ in range(2):
        flow.produce(20)
        flow.interval()
        flow.check()
    flow.interval_is_empty()
