"""What happened between two snapshots."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import Message, SessionSnapshot
from snapshot_plugin.model import Metrics, PlanEntry, SessionConfig, TextBlock, ToolCallBlock
from snapshot_plugin.model.align import align
from snapshot_plugin.model.diff import Change, MessageChange, MetricsDelta, PlanChange, SnapshotDiff, ToolRun, diff
from tests.tries import tries
from tests.unknown_fields import with_unknown

NOW = datetime(2026, 11, 16, tzinfo=UTC)
EMPTY = SessionSnapshot(session_id="s", created_at=NOW, updated_at=NOW)


def user(text: str, message_id: str | None = None) -> Message:
    return Message(role="user", content=(TextBlock(text=text),), id=message_id)


def agent(*blocks: Any, message_id: str | None = None) -> Message:
    return Message(role="assistant", content=blocks, id=message_id)


def call(tool_call_id: str, status: str | None = "completed", **fields: Any) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=tool_call_id, status=status, **fields)


def between(old: list[Message], new: list[Message]) -> SnapshotDiff:
    return diff(EMPTY.evolve(messages=old), EMPTY.evolve(messages=new))


def positions(found: SnapshotDiff) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    edited = [(change.before, change.after) for change in found.messages_changed]
    return list(found.messages_removed), list(found.messages_added), edited


@pytest.mark.requirement("STORE-VALUE-DIFF")
def test_equal_snapshots_have_an_empty_diff() -> None:
    full = EMPTY.append(user("a"), title="t", memory={"a": [1]})
    full = with_unknown(full, mine=1)
    later = full.evolve(updated_at=NOW + timedelta(hours=1))

    found = diff(full, SessionSnapshot.model_validate(later.raw()))

    assert found.is_empty
    assert found == SnapshotDiff(common_prefix=1)
    assert found.stat() == "no changes"


@pytest.mark.parametrize(
    ("old", "new", "removed", "added", "edited"),
    [
        ("ab", "abcd", [], [2, 3], []),
        ("abcd", "ab", [2, 3], [], []),
        ("abc", "axc", [], [], [(1, 1)]),
        ("abcde", "xde", [1, 2], [], [(0, 0)]),
        ("abc", "xabc", [], [0], []),
        ("abcd", "acxd", [1], [2], []),
        ("abcdef", "abxdyzef", [], [4, 5], [(2, 2)]),
        ("", "a", [], [0], []),
        ("ab", "ba", [1], [0], []),
    ],
)
def test_messages_without_ids_are_matched_by_content_and_position(
    old: str, new: str, removed: list[int], added: list[int], edited: list[tuple[int, int]]
) -> None:
    found = between([user(text) for text in old], [user(text) for text in new])

    assert positions(found) == (removed, added, edited)


def test_messages_with_equal_ids_match_however_far_they_moved() -> None:
    old = [user("a", "1"), user("b", "2"), user("c", "3"), user("d", "4")]
    new = [user("summary", "9"), user("c, edited", "3"), user("d", "4"), user("e", "5")]

    assert positions(between(old, new)) == ([0, 1], [0, 3], [(2, 1)])


def test_different_ids_are_never_treated_as_an_edit() -> None:
    assert positions(between([user("a", "1")], [user("b", "2")])) == ([0], [0], [])


def test_changed_role_is_another_message() -> None:
    assert positions(between([user("a")], [agent(TextBlock(text="a"))])) == ([0], [0], [])


def test_the_common_prefix_is_counted() -> None:
    assert between([user("a"), user("b"), user("c")], [user("a"), user("b"), user("x")]).common_prefix == 2


def test_tools_run_in_between_are_listed_with_their_outcome() -> None:
    old = [user("go"), agent(call("1"), call("2", "in_progress", title="Build"))]
    new = [
        user("go"),
        agent(call("1"), call("2", "failed", title="Build")),
        user("more"),
        agent(call("3"), call("4", None)),
    ]

    assert between(old, new).tools_run == (
        ToolRun(tool_call_id="2", title="Build", status="failed"),
        ToolRun(tool_call_id="3", status="completed"),
        ToolRun(tool_call_id="4"),
    )


def test_earlier_call_is_not_listed_again_when_its_message_was_edited() -> None:
    old = [agent(call("1"), message_id="m")]
    new = [agent(TextBlock(text="x"), call("1", content=[1]), message_id="m")]

    assert between(old, new).tools_run == ()
    assert between(old, new).messages_changed == (MessageChange(before=0, after=0),)


def test_later_call_that_reuses_an_id_is_listed() -> None:
    old = [agent(call("1")), user("more")]

    assert len(between(old, [*old, agent(call("1"))]).tools_run) == 1


def test_files_are_those_named_by_the_tools_that_ran() -> None:
    before = agent(call("0", locations=[{"path": "/not-this-time"}]))
    after = agent(
        call("1", content=[{"type": "diff", "path": "/b", "newText": "x"}, {"type": "terminal"}, "odd"]),
        call("2", locations=[{"path": "/a", "line": 1}, {"path": 7}, {"path": "/b"}], content="odd"),
    )

    assert between([before], [before, after]).files == ("/a", "/b")


def test_plan_steps_are_matched_by_text() -> None:
    old = (PlanEntry(content="read"), PlanEntry(content="drop"), PlanEntry(content="same"))
    new = (PlanEntry(content="same"), PlanEntry(content="read", status="completed"), PlanEntry(content="new"))

    assert diff(EMPTY.evolve(plan=old), EMPTY.evolve(plan=new)).plan == (
        PlanChange(content="read", before=old[0], after=new[1]),
        PlanChange(content="drop", before=old[1]),
        PlanChange(content="new", after=new[2]),
    )


def test_settings_are_compared_by_path_and_as_json() -> None:
    old = SessionConfig(mode="plan", cwd="/a", options={"effort": {"level": 1}, "gone": True, "same": [1]})
    made = SessionConfig(mode="code", cwd="/a", options={"effort": {"level": True}, "same": [1]})
    new = with_unknown(made, future="x")

    assert diff(EMPTY.evolve(config=old), EMPTY.evolve(config=new)).config == (
        Change(path="config.future", after="x"),
        Change(path="config.mode", before="plan", after="code"),
        Change(path="config.options.effort.level", before=1, after=True),
        Change(path="config.options.gone", before=True),
    )


def test_metrics_are_subtracted() -> None:
    old = Metrics(turns=1, input_tokens=10, output_tokens=5, total_tokens=15, cost=0.2, currency="USD")
    new = Metrics(
        turns=3, input_tokens=30, output_tokens=1, total_tokens=31, cost=0.3, currency="USD", duration_seconds=2
    )

    assert diff(EMPTY.evolve(metrics=old), EMPTY.evolve(metrics=new)).metrics == MetricsDelta(
        turns=2, input_tokens=20, output_tokens=-4, total_tokens=16, cost=0.1, duration_seconds=2
    )


@pytest.mark.parametrize(
    ("before", "after", "cost"),
    [
        (Metrics(), Metrics(cost=0.5, currency="USD"), 0.5),
        (Metrics(cost=1, currency="USD"), Metrics(cost=2, currency="EUR"), None),
        (Metrics(cost=1), Metrics(), None),
        (Metrics(cost=1), Metrics(cost=1), 0.0),
    ],
)
def test_costs_that_cannot_be_compared_are_not_subtracted(
    before: Metrics, after: Metrics, cost: float | None
) -> None:
    assert diff(EMPTY.evolve(metrics=before), EMPTY.evolve(metrics=after)).metrics.cost == cost


def test_other_differences_are_named() -> None:
    old = EMPTY.evolve(title="a", memory={"notes": 1, "same": 2}, plugins={"p": 1})
    old = with_unknown(old, mine={"a": 1})
    new = EMPTY.evolve(title="b", memory={"notes": True, "same": 2}, pinned=True, tags=("x",))
    new = with_unknown(new, mine={"a": 2})

    assert set(diff(old, new).other) == {"title", "memory.notes", "plugins.p", "mine", "pinned", "tags"}


@pytest.mark.parametrize(
    ("old", "new", "other"),
    [
        ({"plan": [{"content": "a"}, {"content": "b"}]}, {"plan": [{"content": "b"}, {"content": "a"}]}, "plan"),
        ({"metrics": {"future": 1}}, {"metrics": {"future": 2}}, "metrics"),
    ],
)
def test_difference_in_any_other_section_is_named(old: Any, new: Any, other: str) -> None:
    assert diff(EMPTY.evolve(**old), EMPTY.evolve(**new)).other == (other,)


def test_stat_is_one_line_without_zero_counts() -> None:
    old = EMPTY.append(user("go"))
    new = old.append(
        agent(call("1", locations=[{"path": "/a"}])),
        agent(call("2")),
        metrics=Metrics(total_tokens=1200, cost=0.25),
        title="x",
    )

    assert diff(old, new).stat() == (
        "2 messages added, 2 tools run, 1 file touched, +1200 tokens, +0.25 cost, also changed: title"
    )
    assert diff(EMPTY, EMPTY.evolve(metrics=Metrics(turns=1))).stat() == "metrics changed"


def test_diff_round_trips_through_json() -> None:
    old = EMPTY.evolve(config=SessionConfig(mode="plan"), plan=(PlanEntry(content="a"),))
    found = diff(old, EMPTY.append(user("a"), agent(call("1", locations=[{"path": "/x"}]))))

    assert SnapshotDiff.model_validate(json.loads(json.dumps(found.raw()))) == found


def test_reordering_a_long_conversation_is_fast() -> None:
    messages = [user(f"{n % 50}", None if n % 50 else str(n)) for n in range(4000)]

    assert not between(messages, messages[::-1]).is_empty


MESSAGES = st.lists(
    st.builds(user, st.sampled_from("abc"), st.none() | st.sampled_from("12345"))
    | st.builds(agent, st.builds(TextBlock, text=st.sampled_from("abc"))),
    max_size=8,
)


@pytest.mark.requirement("STORE-VALUE-DIFF")
@tries(400)
@given(MESSAGES, MESSAGES)
def test_old_messages_and_the_alignment_give_the_new_messages(old: list[Message], new: list[Message]) -> None:
    found = align(old, new)
    edits = dict(found.edited)

    kept = [new[edits[i]] if i in edits else message for i, message in enumerate(old) if i not in found.removed]
    for place in found.added:
        kept.insert(place, new[place])

    assert kept == new
    assert new[: found.common_prefix] == old[: found.common_prefix]
    assert list(found.edited) == sorted(found.edited)
    assert [j for _, j in found.edited] == sorted(edits.values())


@pytest.mark.requirement("STORE-VALUE-DIFF")
@tries(200)
@given(MESSAGES, MESSAGES)
def test_a_diff_is_empty_exactly_when_nothing_differs(old: list[Message], new: list[Message]) -> None:
    assert between(old, new).is_empty == (old == new)
