"""JSON values that cannot change, and what is refused on the way in."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import InvalidSnapshot
from snapshot_plugin.model.frozen import FrozenDict, FrozenList, freeze, thaw
from tests.tries import tries

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)

DICT_CHANGES: list[Callable[[Any], object]] = [
    lambda d: d.__setitem__("a", 2),
    lambda d: d.__delitem__("a"),
    lambda d: d.__ior__({"b": 1}),
    lambda d: d.clear(),
    lambda d: d.pop("a"),
    lambda d: d.popitem(),
    lambda d: d.setdefault("b", 1),
    lambda d: d.update(b=1),
]
LIST_CHANGES: list[Callable[[Any], object]] = [
    lambda items: items.__setitem__(0, 2),
    lambda items: items.__setitem__(slice(0, 1), []),
    lambda items: items.__delitem__(0),
    lambda items: items.__iadd__([1]),
    lambda items: items.__imul__(2),
    lambda items: items.append(1),
    lambda items: items.extend([1]),
    lambda items: items.insert(0, 1),
    lambda items: items.pop(),
    lambda items: items.remove(1),
    lambda items: items.clear(),
    lambda items: items.sort(),
    lambda items: items.reverse(),
]


@pytest.mark.requirement("STORE-VALUE-FROZEN")
@pytest.mark.parametrize("change", DICT_CHANGES)
def test_a_frozen_dict_refuses_every_change(change: Callable[[Any], object]) -> None:
    frozen = freeze({"a": 1})

    with pytest.raises(TypeError):
        change(frozen)
    assert frozen == {"a": 1}


@pytest.mark.requirement("STORE-VALUE-FROZEN")
@pytest.mark.parametrize("change", LIST_CHANGES)
def test_a_frozen_list_refuses_every_change(change: Callable[[Any], object]) -> None:
    frozen = freeze([1])

    with pytest.raises(TypeError):
        change(frozen)
    assert frozen == [1]


def test_every_mutating_method_of_dict_and_list_is_covered() -> None:
    mutable = set(dir(dict)) | set(dir(list))
    read_only = {"copy", "count", "fromkeys", "get", "index", "items", "keys", "values"}
    refused = {name for kind in (FrozenDict, FrozenList) for name in vars(kind)}

    assert {name for name in mutable if not name.startswith("_")} - read_only <= refused


def test_nested_values_are_frozen_and_the_callers_objects_unchanged() -> None:
    inner: list[Any] = [1]
    mine = {"a": [{"b": inner}], "t": (1, [2])}

    frozen = freeze(mine)
    inner.append(2)

    assert frozen == {"a": [{"b": [1]}], "t": [1, [2]]}
    assert type(frozen["a"][0]["b"]) is FrozenList
    assert type(frozen["t"][1]) is FrozenList


def test_freezing_a_frozen_value_returns_it() -> None:
    frozen = freeze({"a": [1]})

    assert freeze(frozen) is frozen
    assert freeze({"again": frozen})["again"] is frozen


@tries(100)
@given(JSON)
def test_freeze_and_thaw_keep_the_value_and_its_json(value: Any) -> None:
    frozen = freeze(value)

    assert json.dumps(frozen) == json.dumps(value) == json.dumps(thaw(frozen))
    assert freeze(copy.deepcopy(frozen)) == pickle.loads(pickle.dumps(frozen)) == frozen
    assert hash(freeze(thaw(frozen))) == hash(frozen)


def test_thawed_values_are_independent_of_the_frozen_one() -> None:
    frozen = freeze({"a": [1]})
    thawed = thaw(frozen)
    thawed["a"].append(2)

    assert (frozen, thawed) == ({"a": [1]}, {"a": [1, 2]})


def test_copies_of_frozen_values_are_frozen() -> None:
    frozen = freeze({"a": [1]})

    assert type(copy.copy(frozen)) is FrozenDict
    assert type(copy.deepcopy(frozen)["a"]) is FrozenList


@pytest.mark.requirement("STORE-VALUE-NAN")
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [0, float("nan")]}, "value.a[1]"),
        ([float("inf")], "value[0]"),
        ({"a": {"b": float("-inf")}}, "value.a.b"),
        ({"a": {1: "x"}}, "value.a"),
        ({"a": {None: "x"}}, "value.a"),
        ({"a": [b"bytes"]}, "value.a[0]"),
        ({"a": {"b": {1, 2}}}, "value.a.b"),
        ([object()], "value[0]"),
    ],
)
def test_values_beyond_json_are_refused_with_their_path(value: Any, path: str) -> None:
    with pytest.raises(InvalidSnapshot) as refused:
        freeze(value)

    assert refused.value.message.split(" ")[0] == path
    assert refused.value.hint


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = [loop]

    with pytest.raises(InvalidSnapshot):
        freeze(loop)


def test_enum_members_are_stored_by_value() -> None:
    class Colour(str, Enum):  # noqa: UP042 — StrEnum would hide the difference
        RED = "red"

    class Level(IntEnum):
        HIGH = 3

    frozen = freeze({Colour.RED: [Colour.RED, Level.HIGH]})

    assert json.dumps(frozen) == '{"red": ["red", 3]}'
    assert [type(key) for key in frozen] == [str]
    assert [type(item) for item in frozen["red"]] == [str, int]
