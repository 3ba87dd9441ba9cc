"""Spark's types: which one holds which, and how a table's columns follow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.records.fits import unassignable, unholdable
from sluice.records.structs import field, in_words, merge, names, same, stored, struct, wider_atom, without

ATOMS = [
    "byte", "short", "integer", "long", "float", "double", "string", "binary", "boolean", "date", "timestamp",
    "decimal(10,2)", "decimal(38,0)", "decimal(38,38)", "decimal(5,0)", "void",
]  # fmt: skip


def of(**kinds):
    return struct(field(name, kind) for name, kind in kinds.items())


def array(kind):
    return {"type": "array", "elementType": kind, "containsNull": True}


def mapped(kind):
    return {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}


types = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        inner.map(array)
        | inner.map(mapped)
        | st.dictionaries(st.sampled_from("abcDE"), inner, min_size=1, max_size=3).map(lambda kinds: of(**kinds))
    ),
    max_leaves=6,
)
structs = st.dictionaries(st.sampled_from("abcDE"), types, min_size=1, max_size=4).map(lambda kinds: of(**kinds))


@pytest.mark.parametrize(
    ("one", "other", "wider"),
    [
        ("integer", "long", "long"),
        ("byte", "short", "short"),
        ("float", "double", "double"),
        ("short", "float", "float"),
        ("integer", "float", "double"),
        ("integer", "double", "double"),
        ("long", "double", None),  # a DOUBLE has 53 bits
        ("integer", "decimal(5,2)", "decimal(12,2)"),
        ("long", "decimal(10,2)", "decimal(21,2)"),
        ("decimal(10,2)", "decimal(12,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(5,4)", "decimal(12,4)"),
        ("decimal(38,0)", "decimal(38,38)", None),
        ("double", "decimal(10,2)", None),
        ("string", "integer", None),
        ("date", "timestamp", None),
        ("void", "boolean", "boolean"),
    ],
)
def test_the_wider_of_two(one, other, wider):
    assert wider_atom(one, other) == wider_atom(other, one) == wider


@given(st.sampled_from(ATOMS), st.sampled_from(ATOMS), st.sampled_from(ATOMS))
def test_wider_is_an_upper_bound(one, other, third):
    wider = wider_atom(one, other)
    if wider is not None:
        assert wider_atom(wider, one) == wider_atom(wider, other) == wider
        assert wider_atom(one, one) == one
    if wider is not None and wider_atom(wider, third) is not None:
        assert wider_atom(other, third) is not None


@given(structs)
def test_a_struct_with_itself_is_itself(kind):
    assert merge(kind, kind).struct == kind
    assert merge(kind, kind, of_rows=True).conflicts == ()
    assert unassignable(kind, kind) == ()
    assert same(kind, kind)
    assert same(stored(stored(kind)), stored(kind))


@given(structs, structs)
def test_what_two_come_to_holds_both(one, other):
    merged = merge(one, other)
    if merged.conflicts:
        assert merged.struct == one
        return
    assert unassignable(merged.struct, one) == unassignable(merged.struct, other) == ()
    assert names(merged.struct)[: len(names(one))] == names(one)
    again = merge(merged.struct, other)
    assert same(again.struct, merged.struct)


def test_added_widened_reordered_and_nullable():
    known = struct([field("a", "integer", nullable=False), field("b", "string", nullable=False)])
    new = of(c=of(x="date"), A="long")
    merged = merge(known, new).struct
    assert [(f["name"], f["type"], f["nullable"]) for f in merged["fields"]] == [
        ("a", "long", True),
        ("b", "string", True),
        ("c", of(x="date"), True),
    ]


@pytest.mark.parametrize(
    ("known", "new", "path"),
    [
        (of(s=of(a="integer")), of(s=of(a="long")), "s.a"),
        (of(l=array("integer")), of(l=array("long")), "l[]"),
        (of(l=array(of(x="float"))), of(l=array(of(x="double"))), "l[].x"),
        (of(m=mapped("integer")), of(m=mapped("long")), "m{}"),
        (of(m=mapped(array("integer"))), of(m=mapped(array("long"))), "m{}[]"),
        (of(s=of(t=of(a="decimal(8,2)"))), of(s=of(t=of(a="decimal(12,2)"))), "s.t.a"),
    ],
)
def test_what_is_inside_of_a_tables_rows_does_not_become_wider(known, new, path):
    assert merge(known, new).conflicts == ()
    (conflict,) = merge(known, new, of_rows=True).conflicts
    assert conflict.field == path
    assert str(conflict).endswith(" there (inside of a column nothing becomes wider)")
    assert merge(new, known, of_rows=True).conflicts == ()
    added = merge(known, of(**{f["name"]: f["type"] for f in known["fields"]}, more="string"), of_rows=True)
    assert added.conflicts == ()


@pytest.mark.parametrize(
    ("wanted", "has", "fits"),
    [
        ("string", "integer", True),
        ("string", "timestamp", True),
        ("string", "binary", False),
        ("timestamp", "date", True),
        ("date", "timestamp", False),
        ("long", "integer", True),
        ("integer", "long", False),
        ("decimal(10,2)", "double", False),
        ("decimal(10,2)", "decimal(11,2)", False),
        ("integer", "string", False),
        ("string", array("string"), False),
    ],
)
def test_assignable(wanted, has, fits):
    assert (unassignable(of(a=wanted, only_there="string"), of(A=has, more="date")) == ()) is fits
    assert (unassignable(of(s=of(a=wanted)), of(s=of(a=has))) == ()) is fits
    assert (unassignable(of(s=array(wanted)), of(s=array(has))) == ()) is fits


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (of(**{"a b": "integer"}), "`a b`"),
        (of(s=of(**{"x.y": "integer"})), "`s.x.y`"),
        (of(**{"1st": "integer"}), "`1st`"),
        (of(a="integer", A="integer"), "twice"),
        (of(_hoodie_x="integer"), "Hudi's own"),
        (of(n="void"), "VOID"),
        (of(i="interval day"), "INTERVAL"),
        (of(s=struct([])), "`s` has no field"),
        (of(m={**mapped("string"), "keyType": "integer"}), "keys that are INT"),
    ],
)
def test_what_hudi_can_not_hold(kind, words):
    assert words in "; ".join(unholdable(kind))


def test_what_hudi_can_hold():
    good = of(select="integer", Größe="string", _x=mapped(array(of(table="decimal(38,37)"))))
    assert unholdable(good) == []


def test_small_integers_are_held_as_int():
    assert stored(of(a="byte", s=of(b="short"), l=array("short"), m=mapped("byte"))) == of(
        a="integer", s=of(b="integer"), l=array("integer"), m=mapped("integer")
    )


def test_in_words_and_without():
    kind = of(a="long", l=array(of(x="short")), m=mapped("decimal(3,1)"))
    assert in_words(kind) == "STRUCT<a: BIGINT, l: ARRAY<STRUCT<x: SMALLINT>>, m: MAP<STRING, DECIMAL(3,1)>>"
    assert names(without(kind, ["l"])) == ["a", "m"]
