"""The tables of docs/guarantees/kinds-of-change.md are those by which tests/guarantees/test_kinds_of_change.py goes."""

from __future__ import annotations

import pytest

from ..guarantees.kinds_of_change import AS_THEY_ARE, EVENTS, REFUSED, SOFT, TABLES, TOMBSTONES, tables


def test_the_page_has_the_tables():
    assert list(tables()) == list(TABLES)


@pytest.mark.parametrize("corner", TABLES)
def test_each_cell_of_the_page_has_a_meaning(corner):
    expected, found = TABLES[corner], tables()[corner]
    words = {kind.name: {*kind.means} for kind in expected.kinds}
    words |= {name: set(each) for name, each in expected.others.items()}
    assert found.keys() == words.keys()
    for name, cells in found.items():
        assert list(cells) == list(expected.columns)
        for head, cell in cells.items():
            appends = corner != AS_THEY_ARE and expected.columns[head] == "files"
            assert cell in ({REFUSED} if appends else words[name]), (name, head)


@pytest.mark.parametrize("kinds", [EVENTS, SOFT, TOMBSTONES])
def test_kinds_that_go_through_one_pipeline_have_keys_of_their_own(kinds):
    keys = [{number for number, _ in (*kind.sent, *kind.later) if number is not None} for kind in kinds]
    assert len(set().union(*keys)) == sum(map(len, keys))
