"""A baseline holds what responses look like, and nothing of what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin.memory import Baseline, shape_of
from snapshot_plugin.memory.shapes import with_shapes
from tests.memory.opening import Opener, stored_text
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.tries import tries

USERS = {
    "users": [
        {
            "id": 7,
            "name": "Ann Example",
            "mail": "ann@example.org",
            "admin": True,
            "boss": None,
            "tags": ["x", "y"],
        },
        {"id": 8, "name": "Bob Sample", "mail": "bob@example.org", "admin": False, "boss": None, "tags": ["z"]},
    ],
    "by_mail": {"ann@example.org": 7, "bob@example.org": 8},
    "by_day": {"1987-06-04": {"visits": 3}, "1987-06-05": {"visits": 5, "late": True}},
}
SHAPE = {
    "users": [
        {
            "id": "<number>",
            "name": "<string>",
            "mail": "<string>",
            "admin": "<boolean>",
            "boss": "<null>",
            "tags": ["<string>"],
        }
    ],
    "by_mail": {"<key>": ["<number>"]},
    "by_day": {"<key>": [{"visits": "<number>"}, {"visits": "<number>", "late": "<boolean>"}]},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=12), inner, max_size=6),
    max_leaves=30,
)


def test_shape_lists_fields_and_types() -> None:
    assert shape_of(USERS) == SHAPE


@given(JSON)
@tries(60)
def test_shape_of_a_shape_is_itself(response: Any) -> None:
    assert shape_of(shape_of(response)) == shape_of(response)


@given(JSON, st.dictionaries(st.sampled_from(["response", "body", "status", "kept"]), JSON))
@tries(60)
def test_storing_a_stored_shape_changes_nothing(response: Any, around: dict[str, Any]) -> None:
    once, _ = with_shapes({**around, "response": response})
    assert with_shapes(once) == (once, 0)


def test_list_items_are_distinguished_up_to_a_limit() -> None:
    assert len(shape_of([{f"field_{n}": 1} for n in range(100)])) == 8


@pytest.mark.anyio
@pytest.mark.requirement("GASOLINE-P-PRIVACY-SHAPES")
@pytest.mark.parametrize(
    ("data", "kept"),
    [
        ({"response": USERS}, {"response": SHAPE}),
        ({"status": 200, "body": USERS}, {"status": 200, "body": SHAPE}),
        ({"response_body": USERS, "page": "/users"}, {"response_body": SHAPE, "page": "/users"}),
        (
            {"steps": [{"response": {"status": 201, "json": USERS}}]},
            {"steps": [{"response": {"status": 201, "json": SHAPE}}]},
        ),
        (
            {"response": {"status": "Ann Example", "statusCode": 7}},
            {"response": {"status": "<string>", "statusCode": "<number>"}},
        ),
        ({"body": {"status": 200}}, {"body": {"status": "<number>"}}),
        ({"response": "Ann Example <ann@example.org>"}, {"response": "<string>"}),
    ],
)
async def test_baseline_holds_response_shapes_and_no_values(
    open_memory: Opener, project: Path, data: dict[str, Any], kept: dict[str, Any]
) -> None:
    async with open_memory() as memory:
        receipts = [
            await memory.save_baseline(Baseline(name="users", data=data)),
            await memory.save("baselines", "raw", data),
        ]
    assert [receipt.redacted for receipt in receipts] == [{"response": 1}] * 2
    async with open_memory() as memory:
        assert (await memory.load_baseline("users")).data == kept
        assert await memory.load("baselines", "raw") == kept
    stored = stored_text(project)
    assert not [word for word in ("Ann", "Bob", "example.org", "1987-06") if word in stored]


@pytest.mark.anyio
async def test_shape_regression_is_found_and_changed_values_are_ignored(open_memory: Opener) -> None:
    async with open_memory() as memory:
        await memory.save_baseline(Baseline(name="users", data={"response": USERS}))
    async with open_memory() as memory:
        before = (await memory.load_baseline("users")).data["response"]
    fewer = {**USERS, "users": [{"id": "7"}]}
    assert shape_of(fewer) != before
    assert shape_of({**USERS, "by_mail": {"eve@example.org": 1}}) == before


@pytest.mark.anyio
async def test_other_namespaces_store_values_unchanged(open_memory: Opener) -> None:
    async with open_memory() as memory:
        assert (await memory.save("notes", "users", {"response": USERS})).redacted == {}
        assert await memory.load("notes", "users") == {"response": USERS}
