"""The smallest single change between two lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import Message
from snapshot_plugin.model.splice import Splice, splice_between
from tests.tries import tries

LISTS = st.lists(st.integers(0, 3), max_size=10)


def apply(splice: Splice, old: list[int], new: list[int]) -> list[int]:
    inserted = new[splice.at : splice.at + splice.insert]
    return old[: splice.at] + inserted + old[splice.at + splice.delete :]


@pytest.mark.parametrize(
    ("old", "new", "splice"),
    [
        ([], [], Splice(0, 0, 0)),
        ([1, 2], [1, 2], Splice(2, 0, 0)),
        ([1, 2], [1, 2, 3, 4], Splice(2, 0, 2)),
        ([1, 2, 3], [1, 2], Splice(2, 1, 0)),
        ([1, 2, 3], [1, 9, 3], Splice(1, 1, 1)),
        ([1, 2, 3, 4], [9, 4], Splice(0, 3, 1)),
        ([1, 2], [], Splice(0, 2, 0)),
        ([1, 1], [1, 1, 1], Splice(2, 0, 1)),
        ([1, 1, 1], [1, 1], Splice(2, 1, 0)),
    ],
)
def test_appending_editing_truncating_and_replacing_a_prefix(
    old: list[int], new: list[int], splice: Splice
) -> None:
    assert splice_between(old, new) == splice


@tries(300)
@given(LISTS, LISTS)
def test_a_splice_turns_the_old_list_into_the_new_one(old: list[int], new: list[int]) -> None:
    assert apply(splice_between(old, new), old, new) == new


@tries(300)
@given(LISTS, LISTS)
def test_splice_is_minimal(old: list[int], new: list[int]) -> None:
    found = splice_between(old, new)
    smaller = [
        Splice(at, delete, len(new) - len(old) + delete)
        for delete in range(found.delete)
        for at in range(len(old) - delete + 1)
        if len(new) - len(old) + delete >= 0
    ]

    assert not any(apply(splice, old, new) == new for splice in smaller)


@tries(100)
@given(LISTS, st.integers(0, 10), st.integers(0, 5), LISTS)
def test_random_edit_gives_a_splice_no_larger_than_the_edit(
    old: list[int], at: int, delete: int, insert: list[int]
) -> None:
    new = [*old[:at], *insert, *old[at + delete :]]

    found = splice_between(old, new)

    assert found.insert <= len(insert)
    assert found.delete <= min(delete, max(len(old) - at, 0))


def test_messages_are_compared_as_json_so_true_and_one_differ() -> None:
    one, true = (Message(role="user", metadata={"flag": flag}) for flag in (1, True))

    assert splice_between((one, one), (one, true)) == Splice(1, 1, 1)


def test_reloaded_messages_compare_equal() -> None:
    old = [Message(role="user", content=text) for text in "abcde"]
    loaded = [Message.model_validate(message.raw()) for message in old]

    assert splice_between(old, loaded) == Splice(5, 0, 0)
    assert splice_between(old, [*loaded[:2], *loaded[3:]]) == Splice(2, 1, 0)
