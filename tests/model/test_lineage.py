"""Forks and family trees."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import InvalidInput, InvalidSessionId, InvalidSnapshot, Message, SessionSnapshot
from snapshot_plugin.model import Metrics, Parent, PlanEntry
from snapshot_plugin.model.lineage import Branch, ancestors, family_tree, fork
from tests.tries import tries
from tests.unknown_fields import with_unknown

THEN = datetime(2026, 11, 1, tzinfo=UTC)
NOW = THEN + timedelta(days=15)

_MADE = SessionSnapshot(
    session_id="original",
    created_at=THEN,
    updated_at=THEN,
    agent_session_id="agent-7",
    messages=tuple(Message(role="user", content=text) for text in "abc"),
    current_task="task",
    plan=(PlanEntry(content="step"),),
    metrics=Metrics(turns=3, cost=1.0),
    title="Fix auth",
    tags=("work",),
    pinned=True,
    memory={"notes": [1]},
)
ORIGINAL = with_unknown(_MADE, unknown={"kept": True})


def pairs(**parents: str | None) -> list[tuple[str, Parent | None]]:
    return [
        (child, None if parent is None else Parent(session_id=parent, seq=1, message_index=0))
        for child, parent in parents.items()
    ]


def shape(tree: tuple[Branch, ...]) -> list[tuple[str, int, str | None]]:
    return [(branch.session_id, branch.depth, branch.broken) for branch in tree]


@pytest.mark.requirement("STORE-VALUE-LINEAGE", "TERMINAL-BRANCH-ANYWHERE")
def test_fork_copies_the_first_messages_and_records_its_origin() -> None:
    forked = fork(ORIGINAL, session_id="fork", seq=9, messages=2, now=NOW)

    assert forked.session_id == "fork"
    assert forked.parent == Parent(session_id="original", seq=9, message_index=2)
    assert all(mine is theirs for mine, theirs in zip(forked.messages, ORIGINAL.messages[:2], strict=True))
    assert (forked.created_at, forked.updated_at) == (NOW, NOW)


def test_fork_without_a_position_copies_everything() -> None:
    forked = fork(ORIGINAL, session_id="fork", seq=9, now=NOW)

    assert forked.messages == ORIGINAL.messages
    assert (forked.plan, forked.current_task) == (ORIGINAL.plan, ORIGINAL.current_task)
    assert forked.parent is not None
    assert forked.parent.message_index == 3


def test_fork_is_a_separate_session() -> None:
    forked = fork(ORIGINAL, session_id="fork", seq=9, now=NOW)

    assert forked.agent_session_id is None
    assert not forked.pinned
    assert forked.metrics == Metrics()
    assert (forked.title, forked.tags, forked.memory) == (ORIGINAL.title, ORIGINAL.tags, ORIGINAL.memory)
    assert forked.model_extra == {"unknown": {"kept": True}}


def test_fork_from_an_earlier_message_drops_the_later_plan() -> None:
    forked = fork(ORIGINAL, session_id="fork", seq=9, messages=0, now=NOW)

    assert (forked.messages, forked.plan, forked.current_task) == ((), (), None)


def test_original_is_unchanged() -> None:
    before = ORIGINAL.raw()
    fork(ORIGINAL, session_id="fork", seq=9, messages=1, now=NOW)

    assert ORIGINAL.raw() == before


def test_a_fork_of_a_fork_names_its_nearest_parent() -> None:
    second = fork(fork(ORIGINAL, session_id="one", seq=1, now=NOW), session_id="two", seq=4, messages=1, now=NOW)

    assert second.parent == Parent(session_id="one", seq=4, message_index=1)


@pytest.mark.requirement("STORE-VALUE-LINEAGE")
@pytest.mark.parametrize("at", [-1, 4, 10**9])
def test_a_position_outside_the_conversation_is_refused(at: int) -> None:
    with pytest.raises(InvalidInput):
        fork(ORIGINAL, session_id="fork", seq=9, messages=at, now=NOW)


@pytest.mark.parametrize("session_id", ["original", "", "..", "x" * 20_000])
def test_fork_needs_a_new_id(session_id: str) -> None:
    with pytest.raises(InvalidSessionId):
        fork(ORIGINAL, session_id=session_id, seq=9, now=NOW)


def test_naive_now_is_refused() -> None:
    with pytest.raises(InvalidSnapshot):
        fork(ORIGINAL, session_id="fork", seq=9, now=NOW.replace(tzinfo=None))


def test_forks_follow_their_parent_and_siblings_keep_their_order() -> None:
    tree = family_tree(pairs(b1="b", a=None, a2="a", a1="a", b=None, a1x="a1"))

    assert shape(tree) == [
        ("a", 0, None),
        ("a2", 1, None),
        ("a1", 1, None),
        ("a1x", 2, None),
        ("b", 0, None),
        ("b1", 1, None),
    ]
    assert tree[3].parent == Parent(session_id="a1", seq=1, message_index=0)


def test_session_with_a_missing_parent_is_a_root_marked_as_orphan() -> None:
    assert shape(family_tree(pairs(child="gone", grandchild="child"))) == [
        ("child", 0, "parent missing"),
        ("grandchild", 1, None),
    ]


def test_every_session_in_a_cycle_is_a_root_and_keeps_its_forks() -> None:
    assert shape(family_tree(pairs(a="b", b="c", c="a", leaf="b", itself="itself"))) == [
        ("a", 0, "cycle"),
        ("b", 0, "cycle"),
        ("leaf", 1, None),
        ("c", 0, "cycle"),
        ("itself", 0, "cycle"),
    ]


def test_ancestors_are_nearest_first_and_stop_at_the_last_known() -> None:
    family = pairs(d="c", c="b", b="gone", x="y", y="x", alone=None)

    def names(session_id: str) -> list[str]:
        return [parent.session_id for parent in ancestors(session_id, family)]

    assert names("d") == ["c", "b", "gone"]
    assert names("x") == ["y"]
    assert names("alone") == names("never seen") == []


def test_very_long_chain_of_forks_is_handled() -> None:
    family = pairs(**{f"s{n}": f"s{n - 1}" if n else None for n in range(20_000)})

    assert family_tree(reversed(family))[-1].depth == 19_999
    assert len(ancestors("s19999", family)) == 19_999


@tries(300)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.sampled_from("abcdefghXY"), max_size=8))
def test_every_session_is_listed_once_whatever_its_parents(parents: dict[str, Any]) -> None:
    family = pairs(**parents)
    tree = family_tree(family)

    assert sorted(branch.session_id for branch in tree) == sorted(parents)
    for place, branch in enumerate(tree):
        above = next((b.session_id for b in reversed(tree[:place]) if b.depth == branch.depth - 1), None)
        assert above == (branch.parent.session_id if branch.parent and not branch.broken else None)
        known = [parent.session_id for parent in ancestors(branch.session_id, family)]
        assert len(known) == len(set(known))
        assert branch.session_id not in known
        parent = parents[branch.session_id]
        assert (branch.broken == "parent missing") == (parent is not None and parent not in parents)
