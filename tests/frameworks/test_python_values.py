"""Values with classes come back through constructors, and only those that are allowed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import InvalidInput
from snapshot_plugin.frameworks.python_values import ValueCodec, key_of
from tests.tries import tries


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any = None


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.dates() | st.datetimes() | st.times() | st.timedeltas() | st.uuids() | st.decimals(allow_nan=False)
)  # fmt: skip
hashable = st.recursive(leaves, lambda inner: st.tuples(inner, inner) | st.builds(Point, inner), max_leaves=4)
values = st.recursive(
    hashable,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.sets(hashable)
        | st.dictionaries(st.sampled_from(["a", "$", "class"]) | hashable, inner)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=8,
)


def codec(*allowed: type) -> ValueCodec:
    return ValueCodec((), lambda: map(key_of, allowed), {})


@tries(100)
@given(values)
def test_any_value_round_trips(value: Any) -> None:
    found = codec(Point).unpacked(codec(Point).packed(value))
    assert (type(found), found) == (type(value), value)


def test_disallowed_classes_are_refused_in_both_directions() -> None:
    stored = codec(Point).packed(Point(1))
    with pytest.raises(InvalidInput, match="not allowed"):
        codec().packed(Point(1))
    with pytest.raises(InvalidInput, match="not allowed"):
        codec().unpacked(stored)


def test_stored_class_names_do_not_trigger_imports() -> None:
    assert "this" not in sys.modules
    evil = {"$": "made", "class": "this:Zen", "with": {}}
    with pytest.raises(InvalidInput, match="no class"):
        ValueCodec(("this:",), list, {}).unpacked(evil)
    assert "this" not in sys.modules


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidInput, match="contains itself"):
        codec().packed(endless)
