"""Whether an agent remembers: what real agents show again, held against the record."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest

from snapshot_plugin import SessionSnapshot
from snapshot_plugin.acp.compare import compare
from snapshot_plugin.acp.notes import lost_note, transcript_note
from snapshot_plugin.acp.replay import replay
from tests.acp.events import prompt, recorded, said, stop, text, tool

Updates = list[dict[str, Any]]


def turn(words: str, answer: str, reason: str = "end_turn") -> tuple[dict[str, Any], ...]:
    return prompt(words), said(answer), stop(reason)


def user(words: str) -> dict[str, Any]:
    update: dict[str, Any] = said(words, "user_message_chunk")["update"]
    return update


def agent(words: str) -> dict[str, Any]:
    update: dict[str, Any] = said(words)["update"]
    return update


def verdict(record: SessionSnapshot, *updates: dict[str, Any]) -> tuple[str, list[str]]:
    found = compare(record, updates)
    return found.kind, [message.text for message in found.missing]


TWO = recorded(*turn("say one", "one"), *turn("say two", "two"))
SHOWN = (user("say one"), agent("one"), user("say two"), agent("two"))


def test_faithful_replay_compares_as_whole() -> None:
    assert verdict(TWO, *SHOWN) == ("whole", [])
    assert compare(TWO, replay(TWO, {}, tool_bytes=1000)).kind == "whole"


def test_empty_replay_is_blank_and_every_message_is_missing() -> None:
    assert verdict(TWO) == ("blank", ["say one", "one", "say two", "two"])
    assert verdict(TWO, user("hello"), agent("hi"))[0] == "blank"


def test_session_without_messages_compares_as_whole() -> None:
    assert verdict(recorded()) == ("whole", [])
    assert verdict(recorded(tool("t", "tool_call", status="completed"))) == ("whole", [])


@pytest.mark.parametrize("lost", range(4))
def test_missing_message_makes_replay_partial_even_if_its_text_occurs_elsewhere(lost: int) -> None:
    shown = [update for at, update in enumerate(SHOWN) if at != lost]
    kind, missing = verdict(TWO, *shown)
    assert (kind, missing) == ("partial", [TWO.messages[lost].text])


def test_messages_in_another_order_are_partial() -> None:
    assert verdict(TWO, *SHOWN[2:], *SHOWN[:2])[0] == "partial"


def test_chunking_white_space_and_extra_messages_do_not_matter() -> None:
    shown = (
        user("<session_context>"),
        user("sa"),
        user("y  one\n"),
        said("hm", "agent_thought_chunk")["update"],
        agent(" o"),
        user("[Function Response: read_file]"),
        agent("ne"),
        tool("2:t", "tool_call", title="other", status="completed")["update"],
        user("say two"),
        agent("Two is: two!"),
        {"sessionUpdate": "usage_update", "used": 1, "size": 2},
    )
    assert verdict(TWO, *shown) == ("whole", [])


def test_text_around_tools_and_attachments_is_matched_piece_by_piece() -> None:
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    record = recorded(
        {"prompt": [text("look at "), link, text("please")]},
        said("First. "),
        tool("t", "tool_call", status="completed"),
        said("Then."),
        stop(),
    )
    assert verdict(record, user("look at @a please"), agent("First. (ran a tool) Then.")) == ("whole", [])
    assert verdict(record, user("look at @a please"), agent("First."))[0] == "partial"


CUT_OFF = (*turn("say one", "one"), prompt("stream"), said("part-0."))


@pytest.mark.parametrize(
    "end",
    [{"interrupted": "killed"}, stop("cancelled"), {"stop": {"error": {"code": -32603}}}],
    ids=["killed", "cancelled", "failed"],
)
def test_losses_from_an_interrupted_turn_are_reported_but_do_not_lower_the_grade(end: dict[str, Any]) -> None:
    record = recorded(*CUT_OFF, end)
    was_killed = "interrupted" in end  # the model was not told: shown is not known
    both = ["stream", "part-0."]
    assert verdict(record, *SHOWN[:2], user("stream")) == ("whole", both if was_killed else both[1:])
    assert verdict(record, *SHOWN[:2]) == ("whole", both)
    assert verdict(record, *SHOWN[:2], user("stream"), agent("part-0.")) == ("whole", both if was_killed else [])
    assert verdict(record, user("stream"))[0] == "partial"


def test_unanswered_prompt_may_be_missing() -> None:
    assert verdict(recorded(*turn("say one", "one"), prompt("go")), *SHOWN[:2]) == ("whole", ["go"])


def test_text_of_an_earlier_turn_does_not_match_an_interrupted_turn() -> None:
    record = recorded(
        *turn("stream 9", "part-0.part-1."), prompt("stream 9"), said("part-0."), {"interrupted": "x"}
    )
    assert verdict(record, user("stream 9"), agent("part-0.part-1."), user("stream 9")) == (
        "whole",
        ["stream 9", "part-0."],
    )


def test_turn_interrupted_long_ago_does_not_make_later_loads_partial() -> None:
    record = recorded(*CUT_OFF, {"interrupted": "killed"}, *turn("say two", "two"))
    told = lost_note(record.messages[2:4], limit=1000)
    assert verdict(record, *SHOWN[:2], user("stream"), user(told + "say two"), agent("two")) == ("whole", [])
    assert verdict(record, *SHOWN[:2], user("say two"), agent("two")) == ("whole", ["stream", "part-0."])


def test_prompt_resent_after_a_crash_is_expected_once() -> None:
    record = recorded(*CUT_OFF, {"interrupted": "killed"}, *turn("stream", "part-0.part-1."))
    assert verdict(record, *SHOWN[:2], user("stream"), agent("part-0.part-1.")) == ("whole", [])


def test_text_in_a_restoration_note_counts_as_known_to_the_model() -> None:
    note = transcript_note(TWO, limit=10_000)
    record = recorded(*turn("say three", "three"), base=TWO)
    assert verdict(record, user(note), user("say three"), agent("three")) == ("whole", [])
    assert verdict(record, user("say three"), agent("three"))[0] == "partial"


def test_tool_left_running_is_reported_even_if_no_text_is_missing() -> None:
    record = recorded(
        prompt("go"), tool("t", "tool_call", title="Deploy", status="in_progress"), {"interrupted": "x"}
    )
    found = compare(record, [user("go")])
    assert (found.kind, found.missing) == ("whole", record.messages)
    later = recorded(*turn("say two", "two"), base=record)
    assert compare(later, [user("go"), user("say two"), agent("two")]).missing == ()


def test_refused_turn_may_be_missing_and_is_not_repeated_to_the_model() -> None:
    record = recorded(*turn("say one", "one"), *turn("evil", "no", "refusal"))
    assert verdict(record, *SHOWN[:2]) == ("whole", [])


def test_unprompted_agent_messages_may_be_missing() -> None:
    record = recorded(said("Welcome"), *turn("say one", "one"), said("By the way"))
    assert verdict(record, *SHOWN[:2]) == ("whole", ["Welcome", "By the way"])


@pytest.mark.parametrize(
    "update", [{}, {"sessionUpdate": []}, {"sessionUpdate": "agent_message_chunk", "content": 5}]
)
def test_malformed_updates_are_ignored(update: dict[str, Any]) -> None:
    assert verdict(TWO, update, *SHOWN) == ("whole", [])


def test_long_session_is_compared_quickly_whether_present_or_missing() -> None:
    record = recorded(*(event for n in range(1000) for event in turn(f"question {n}", f"answer {n} " + "x" * 500)))
    shown: Updates = list(replay(record, {}, tool_bytes=1000))
    other = [agent("y" * 1000) for _ in range(1000)]
    begun = process_time()
    assert compare(record, shown).kind == "whole"
    assert compare(record, shown[1000:]).kind == "partial"
    assert compare(record, [*other, *shown[-2:]]).kind == "partial"
    assert process_time() - begun < 10


# What real agents leave out -------------------------------------------------------------------------------


def test_notices_are_not_part_of_the_conversation() -> None:
    words = "Warning: the model is not known.\n\nHere you are."
    record = recorded(prompt("go"), said(words), stop())
    assert verdict(record, user("go"), agent("Here you are.")) == ("whole", [])
    assert verdict(record, user("go"), agent("Here")) == (
        "partial",
        ["Warning: the model is not known.\n\nHere you are."],
    )


def test_repeated_openings_that_are_never_replayed_count_as_notices() -> None:
    notice = "Model metadata for `gpt-5` not found. Defaulting to fallback metadata."
    record = recorded(*turn("say one", f"{notice}one"), *turn("say two", f"{notice}two"))
    assert verdict(record, *SHOWN) == ("whole", [])
    assert verdict(record, *SHOWN[:3]) == ("partial", [f"{notice}two"])
    once = recorded(*turn("say one", f"{notice}one"), *turn("say two", "two"))
    assert verdict(once, *SHOWN) == ("partial", [f"{notice}one"])
    replayed = (*SHOWN[:3], agent(f"{notice}three"))
    assert verdict(record, *replayed)[0] == "partial"


def test_slash_commands_and_their_answers_are_not_part_of_the_conversation() -> None:
    record = recorded(*turn("say one", "one"), *turn("/usage", "12 tokens"), *turn("say two", "two"))
    assert verdict(record, *SHOWN) == ("whole", [])


@pytest.mark.parametrize("command", ["/compact", "/compact keep the plan", "/compress", "/summarize"])
def test_messages_replaced_by_a_compaction_are_not_expected(command: str) -> None:
    record = recorded(*turn("say one", "one"), *turn(command, "done"), *turn("say two", "two"))
    assert verdict(record, user("A summary."), *SHOWN[2:]) == ("whole", [])
    assert verdict(record, user("A summary.")) == ("partial", ["say two", "two"])
    assert verdict(record)[0] == "blank"


def test_turns_we_never_recorded_are_foreign() -> None:
    assert verdict(TWO, *SHOWN, user("How do I cook rice?"), agent("With water."))[0] == "foreign"
    assert verdict(TWO, user("How do I cook rice?"), agent("With water."), *SHOWN)[0] == "foreign"


def test_lost_tail_is_reported_message_by_message() -> None:
    assert [m.text for m in compare(TWO, SHOWN[:2]).end] == ["say two", "two"]
    assert compare(TWO, SHOWN[2:]).end == ()


def test_messages_sent_during_a_load_count_as_new() -> None:
    record = recorded(*CUT_OFF, {"interrupted": "killed"})
    assert compare(record, [*SHOWN[:2], user("stream"), agent("Done by myself.")]).news == "Done by myself."
    assert compare(record, [*SHOWN[:2], user("stream"), agent("part-0.part-1.")]).news == "part-1."
    assert compare(record, [*SHOWN[:2], user("stream"), agent("part-0.")]).news == ""
    assert compare(TWO, [*SHOWN, agent("More.")]).news == ""


def test_after_a_context_restore_only_later_messages_are_expected() -> None:
    restored = recorded({"restored": {"grade": "context", "messages": 4}}, base=TWO)
    assert compare(restored, []).kind == "blank"
    later = recorded(*turn("say three", "three"), base=restored)
    assert verdict(later, user("say three"), agent("three")) == ("whole", [])
    assert verdict(later, user("other"))[0] == "blank"
