from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import InvalidInput, InvalidSessionId, Message, SessionSnapshot
from snapshot_plugin.model import Metrics, Parent, PlanEntry
from snapshot_plugin.model.lineage import fork
from snapshot_plugin.model.merge import FROM, OTHER, Kinship, Merged, MergeSide, kinship, merge
from snapshot_plugin.model.three_way import ABSENT, three_way
from snapshot_plugin.testing import make_message, make_snapshot
from tests.tries import tries

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def branch(root: SessionSnapshot, name: str, *texts: str, at: int | None = None, **changes: Any) -> SessionSnapshot:
    forked = fork(root, session_id=name, seq=1, now=NOW, messages=at)
    return forked.append(*(make_message(text) for text in texts), **changes)


def merged(first: SessionSnapshot, second: SessionSnapshot, *others: SessionSnapshot, **options: Any) -> Merged:
    sides = MergeSide(first, 1), MergeSide(second, 1)
    family = [(each.session_id, each.parent) for each in (first, second, *others)]
    return merge(*sides, session_id="merged", now=NOW, kin=kinship(*sides, family), **options)


def texts(snapshot: SessionSnapshot) -> list[str]:
    return [message.text for message in snapshot.messages]


ROOT = make_snapshot("hello", "hi there", session_id="root")


# What comes out ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("TERMINAL-BRANCH-MERGE")
def test_merge_has_shared_messages_then_the_firsts_then_the_seconds() -> None:
    result = merged(branch(ROOT, "a", "try this", "done"), branch(ROOT, "b", "try that", "failed"), ROOT)

    assert texts(result.snapshot) == ["hello", "hi there", "try this", "done", "try that", "failed"]
    assert (result.shared, result.from_first, result.from_second, result.clashes) == (2, 2, 2, ())


@pytest.mark.requirement("TERMINAL-BRANCH-MERGE")
def test_each_merged_message_records_its_origin() -> None:
    result = merged(branch(ROOT, "a", "mine"), branch(ROOT, "b", "yours"), ROOT)

    origins = [message.metadata.get(FROM) for message in result.snapshot.messages]
    assert origins == [
        None,
        None,
        {"session_id": "a", "seq": 1, "index": 2},
        {"session_id": "b", "seq": 1, "index": 2},
    ]


def test_a_message_keeps_its_first_origin_through_further_merges() -> None:
    first, second = branch(ROOT, "a", "mine"), branch(ROOT, "b", "yours")
    once = merged(first, second, ROOT).snapshot
    twice = merged(once.evolve(session_id="once"), branch(ROOT, "c", "more"), first, ROOT).snapshot

    assert [message.metadata[FROM]["session_id"] for message in twice.messages[2:]] == ["a", "b", "c"]


def test_merged_session_is_a_separate_session() -> None:
    first = branch(ROOT, "a", "mine", pinned=True, agent_session_id="theirs", metrics=Metrics(total_tokens=9))
    snapshot = merged(first, branch(ROOT, "b", "yours"), ROOT).snapshot

    assert (snapshot.session_id, snapshot.created_at, snapshot.updated_at) == ("merged", NOW, NOW)
    assert (snapshot.pinned, snapshot.agent_session_id, snapshot.metrics) == (False, None, Metrics())
    assert snapshot.parent == Parent(session_id="a", seq=1, message_index=3)
    assert snapshot.metadata["merge"]["sources"] == [{"session_id": "a", "seq": 1}, {"session_id": "b", "seq": 1}]


def test_branch_without_new_messages_adds_nothing() -> None:
    first = branch(ROOT, "a", "mine")
    assert texts(merged(first, ROOT).snapshot) == texts(merged(ROOT, first).snapshot) == texts(first)


def test_merging_the_result_with_a_branch_adds_nothing() -> None:
    first, second = branch(ROOT, "a", "mine"), branch(ROOT, "b", "yours")
    once = merged(first, second, ROOT).snapshot

    again = merge(
        MergeSide(once, 1),
        MergeSide(first, 1),
        session_id="again",
        now=NOW,
        kin=kinship(MergeSide(once, 1), MergeSide(first, 1), [("a", first.parent), ("root", None)]),
    )
    assert texts(again.snapshot) == texts(once)


def test_equal_text_after_the_fork_stays_two_answers() -> None:
    result = merged(branch(ROOT, "a", "run it", "yes"), branch(ROOT, "b", "stop it", "yes"), ROOT)
    assert texts(result.snapshot)[2:] == ["run it", "yes", "stop it", "yes"]


def test_messages_with_equal_ids_are_merged_wherever_they_stand() -> None:
    said = make_message("shared later", id="m1")
    result = merged(branch(ROOT, "a", "mine").append(said), branch(ROOT, "b", "yours").append(said), ROOT)
    assert texts(result.snapshot)[2:] == ["mine", "yours", "shared later"]
    assert result.snapshot.parent == Parent(session_id="a", seq=1, message_index=3)  # up to where b's own stands


def test_branches_of_unequal_length_share_the_shorter_prefix() -> None:
    root = make_snapshot("one", "two", "three", "four", session_id="root")
    result = merged(branch(root, "a", "mine", at=1), branch(root, "b", "yours", at=3), root)
    assert texts(result.snapshot) == ["one", "mine", "two", "three", "yours"]


def test_ancestor_may_be_missing() -> None:
    result = merged(branch(ROOT, "a", "mine"), branch(ROOT, "b", "yours"))
    assert result.shared == 2


def test_cousins_are_related_through_their_grandparent() -> None:
    parents = branch(ROOT, "p1", "left"), branch(ROOT, "p2", "right")
    result = merged(branch(parents[0], "a", "mine"), branch(parents[1], "b", "yours", at=1), *parents, ROOT)
    assert texts(result.snapshot) == ["hello", "hi there", "left", "mine", "yours"]


# Conflicts ---------------------------------------------------------------------------------------------------


def edited(snapshot: SessionSnapshot, text: str) -> SessionSnapshot:
    first = snapshot.messages[0].evolve(content=text)
    return snapshot.evolve(messages=(first, *snapshot.messages[1:]))


def test_message_edited_in_both_branches_uses_the_first_and_keeps_the_other() -> None:
    first, second = edited(branch(ROOT, "a"), "hello A"), edited(branch(ROOT, "b"), "hello B")
    result = merged(first, second, ROOT, base=ROOT)

    assert texts(result.snapshot) == ["hello A", "hi there"]
    kept = result.snapshot.messages[0].metadata[OTHER]
    assert (kept["session_id"], kept["index"], kept["message"]["content"][0]["text"]) == ("b", 0, "hello B")
    assert [clash.path for clash in result.clashes] == ["messages[0]"]


@pytest.mark.parametrize("first_edits", [True, False])
def test_edit_in_one_branch_is_applied_without_a_conflict(*, first_edits: bool) -> None:
    one, other = edited(branch(ROOT, "a"), "better"), branch(ROOT, "b")
    pair = (one, other) if first_edits else (other, one)
    result = merged(*pair, ROOT, base=ROOT)

    assert texts(result.snapshot) == ["better", "hi there"]
    assert result.clashes == ()


def test_settings_plan_and_title_changed_in_both_use_the_first_and_keep_the_other() -> None:
    first = branch(ROOT, "a", title="A", config={"mode": "plan"}, plan=(PlanEntry(content="x"),))
    second = branch(ROOT, "b", title="B", config={"mode": "code"}, plan=(PlanEntry(content="y"),))
    result = merged(first, second, ROOT, base=ROOT)

    assert (result.snapshot.title, result.snapshot.config.mode) == ("A", "plan")
    assert result.snapshot.plan == first.plan
    kept = {each["path"]: each.get("other") for each in result.snapshot.metadata["merge"]["conflicts"]}
    assert kept == {"title": "B", "config.mode": "code", "plan": [{"content": "y"}]}
    assert {clash.path for clash in result.clashes} == set(kept)


def test_setting_changed_only_in_the_second_branch_is_applied() -> None:
    root = ROOT.evolve(config={"mode": "plan", "model": "small"}, title="old")
    first, second = branch(root, "a", title="new"), branch(root, "b", config={"mode": "code", "model": "small"})
    result = merged(first, second, root, base=root)

    assert (result.snapshot.config.mode, result.snapshot.title, result.clashes) == ("code", "new", ())


def test_given_title_takes_precedence() -> None:
    result = merged(branch(ROOT, "a", title="A"), branch(ROOT, "b", title="B"), ROOT, title="mine")
    assert (result.snapshot.title, result.clashes) == ("mine", ())


def test_tags_are_united() -> None:
    result = merged(branch(ROOT, "a", tags=("x", "y")), branch(ROOT, "b", tags=("y", "z")), ROOT)
    assert (result.snapshot.tags, result.clashes) == (("x", "y", "z"), ())


def test_sections_of_plugins_are_merged_entry_by_entry() -> None:
    first, second = branch(ROOT, "a", plugins={"x": {"n": 1}}), branch(ROOT, "b", plugins={"y": 2, "x": {"m": 2}})
    result = merged(first, second, ROOT, base=ROOT)
    assert result.snapshot.plugins == {"x": {"n": 1, "m": 2}, "y": 2}


# Refusals ----------------------------------------------------------------------------------------------------


def test_unrelated_sessions_are_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        merged(make_snapshot("a", "b", session_id="a"), make_snapshot("c", "d", session_id="b"))
    assert refused.value.hint


def test_shared_greeting_alone_does_not_relate_sessions() -> None:
    with pytest.raises(InvalidInput):
        merged(make_snapshot("hello", "x", session_id="a"), make_snapshot("hello", "y", session_id="b"))


def test_copies_with_the_same_first_exchange_count_as_branches() -> None:
    copies = make_snapshot("q", "a", "x", session_id="a"), make_snapshot("q", "a", "y", session_id="b")
    assert texts(merged(*copies).snapshot) == ["q", "a", "x", "y"]


def test_a_session_is_not_merged_with_itself() -> None:
    with pytest.raises(InvalidInput):
        merged(ROOT, ROOT)


def test_an_id_that_no_store_can_hold_is_refused() -> None:
    with pytest.raises(InvalidSessionId):
        merge(MergeSide(ROOT, 1), MergeSide(ROOT, 2), session_id="..", now=NOW, kin=None)


def test_cycle_among_parents_terminates() -> None:
    loop = [(name, Parent(session_id=other, seq=1, message_index=1)) for name, other in (("a", "b"), ("b", "a"))]
    first, second = (make_snapshot("x", session_id=name, parent=parent) for name, parent in loop)
    assert kinship(MergeSide(first, 1), MergeSide(second, 1), loop) is not None


# Properties --------------------------------------------------------------------------------------------------

_words = st.sampled_from(["yes", "no", "go", "stop"])
_ids = st.none() | st.sampled_from(["m1", "m2", "m3"])
_message = st.builds(lambda role, text, id_: Message(role=role, content=text, id=id_),
                     st.sampled_from(["user", "assistant", "tool"]), _words, _ids)  # fmt: skip
_messages: st.SearchStrategy[tuple[Message, ...]] = st.lists(_message, max_size=6).map(tuple)


@st.composite
def families(draw: st.DrawFn) -> tuple[SessionSnapshot, SessionSnapshot, SessionSnapshot]:
    """A root and two branches of it, which may have been edited, cut short or compacted since."""
    root = make_snapshot(session_id="root").evolve(messages=draw(_messages))
    branches = []
    for name in ("a", "b"):
        forked = fork(root, session_id=name, seq=1, now=NOW, messages=draw(st.integers(0, len(root.messages))))
        messages = list(forked.messages)
        if draw(st.booleans()) and messages:
            messages[draw(st.integers(0, len(messages) - 1))] = draw(_message)
        if draw(st.booleans()) and messages:
            del messages[: draw(st.integers(0, len(messages)))]
        branches.append(forked.evolve(messages=(*messages, *draw(_messages)), title=draw(st.none() | _words)))
    return root, branches[0], branches[1]


def bare(message: Message) -> Message:
    return message.evolve(metadata={})


def versions(message: Message) -> list[Message]:
    """What a merged message holds: itself, and the version that lost."""
    other = message.metadata.get(OTHER)
    return [bare(message), *([Message.model_validate(other["message"])] if other else [])]


def is_in_order(wanted: tuple[Message, ...], there: list[list[Message]]) -> bool:
    places = iter(there)
    return all(any(message in versions for versions in places) for message in wanted)


@given(families())
@tries(150)
def test_merge_loses_nothing_and_keeps_each_branchs_order(
    family: tuple[SessionSnapshot, SessionSnapshot, SessionSnapshot],
) -> None:
    root, first, second = family
    result = merged(first, second, root)
    there = [versions(message) for message in result.snapshot.messages]

    assert is_in_order(first.messages, there)
    assert is_in_order(second.messages, there)
    assert len(there) == result.shared + result.from_first + result.from_second
    assert merged(first, second, root) == result


@given(families())
@tries(100)
def test_with_a_known_ancestor_only_its_messages_may_be_replaced(
    family: tuple[SessionSnapshot, SessionSnapshot, SessionSnapshot],
) -> None:
    root, first, second = family
    result = merged(first, second, root, base=root)
    there = [version for message in result.snapshot.messages for version in versions(message)]

    for message in (*first.messages, *second.messages):
        assert message in there or message in root.messages


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["x", "y"]),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=6,
)


@given(_json, _json, _json)
@tries(300)
def test_value_merge_takes_the_changed_side(base: Any, first: Any, second: Any) -> None:
    assert three_way(base, first, first, "x") == (first, [])
    assert three_way(base, base, second, "x") == (second, [])
    assert three_way(base, first, base, "x") == (first, [])
    assert three_way(ABSENT, ABSENT, second, "x") == (second, [])


def test_value_changed_or_removed_in_both_uses_the_first() -> None:
    assert three_way({"a": 1}, {}, {"a": 2}, "x")[0] == {}
    assert [clash.raw() for clash in three_way({"a": 1}, {}, {"a": 2}, "x")[1]] == [{"path": "x.a", "other": 2}]
    assert three_way({"a": 1}, {"a": True}, {"a": 1.0}, "x")[0] == {"a": True}


def test_kinship_counts_what_each_took_from_the_ancestor() -> None:
    first, second = branch(ROOT, "a", "mine", at=1), branch(ROOT, "b", "yours")
    kin = kinship(MergeSide(first, 4), MergeSide(second, 5), [("root", None)])
    assert kin == Kinship(Parent(session_id="root", seq=1, message_index=1), 1, 2)


def test_branch_of_a_branch_shares_no_more_than_it_copied() -> None:
    root = make_snapshot("one", "two", "three", "four", session_id="root")
    parent = branch(root, "p", "five")
    first, second = branch(parent, "a", "mine", at=1), branch(root, "b", "yours")
    kin = kinship(MergeSide(first, 1), MergeSide(second, 1), [("root", None), ("p", parent.parent)])
    assert kin is not None
    assert (kin.first, kin.second) == (1, 4)
