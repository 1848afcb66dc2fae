"""The judge of the fidelity runs: a run without losses is good in every column, and each loss turns its column."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from integration.agents.catalog import AGENTS
from integration.agents.evidence import Deletion, Evidence
from integration.agents.judge import judge, memory_is_fine
from integration.agents.run import LONG

Json = dict[str, Any]
_PROMPTS = [
    "question-one [[say one]]",
    "question-two [[run two printf x | tee made.txt]]",
    "question-three [[stream]]",
]
_STREAMED = "".join(f"three-{n:03d} " for n in range(1, 13))
_KNOWN = " ".join([*_PROMPTS, "answer-one.", "before-two.", "out-two-done", "after-two."])


def chunk(role: str, text: str) -> Json:
    return {"sessionUpdate": f"{role}_message_chunk", "content": {"type": "text", "text": text}}


def tool(**fields: Any) -> Json:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "call-1", **fields}


def shown() -> list[Json]:
    """The session as a client shows it."""
    return [
        chunk("user", _PROMPTS[0]),
        chunk("agent", "answer-one."),
        chunk("user", _PROMPTS[1]),
        chunk("agent", "before-two."),
        tool(status="completed", title="tee made.txt", kind="execute"),
        tool(_meta={"terminal_output": {"data": "out-two-done"}}),
        chunk("agent", "after-two."),
        chunk("user", _PROMPTS[2]),
        chunk("agent", _STREAMED),
    ]


def whole(**changes: Any) -> Evidence:
    """Killed in mid-stream together with its proxy; nothing was lost."""
    evidence = Evidence(
        agent=AGENTS["kimi"],
        scenario="mid-stream",
        killed="both",
        prompts=list(_PROMPTS),
        before=shown(),
        known=_KNOWN,
        session_ids=["ours"],
        loaded=True,
        replay=shown(),
        request=f"{_KNOWN} {_STREAMED}",
        refused=-32000,
        grade="native-load",
        second_grade="native-load",
        listed=[{"sessionId": "ours", "title": "question-one"}],
        deletion=Deletion({"result": {}}, left=[], own=[]),
    )
    return dataclasses.replace(evidence, **changes)


def lost(evidence: Evidence, *, fine: bool | None = True) -> set[str]:
    return {column for column, cell in judge(evidence, fine).items() if cell.good is False}


def test_run_without_losses_is_good_in_every_column() -> None:
    cells = judge(whole(killed="agent", lived=True), fine=True)
    assert {column for column, cell in cells.items() if cell.good is not True} == set()


@pytest.mark.parametrize(
    ("column", "changes"),
    [
        ("transcript", {"replay": [update for update in shown() if "answer-one." not in str(update)]}),
        ("transcript", {"replay": [*shown(), chunk("agent", "answer-one.")]}),
        ("transcript", {"replay": [chunk("user", "<restoration-note>"), *shown()]}),
        ("transcript", {"replay": shown()[:2], "late": shown()[2:]}),
        ("streamed text", {"replay": [*shown()[:-1], chunk("agent", _STREAMED.replace("three-012", ""))]}),
        ("prompt", {"replay": [update for update in shown() if "question-three" not in str(update)]}),
        ("tool calls", {"replay": [*shown(), tool(status="in_progress")]}),
        ("tool output", {"replay": [update for update in shown() if "out-two-done" not in str(update)]}),
        ("tool output", {"request": f"{_KNOWN} {_STREAMED}".replace("out-two-done", "")}),
        ("model knows", {"request": _KNOWN}),
        ("native", {"grade": "context"}),
        ("native", {"second_grade": "context"}),
        ("native", {"request": f"{_KNOWN} {_STREAMED} answer-one."}),
        ("list", {"listed": [{"sessionId": "ours"}, {"sessionId": "the agent's"}]}),
        ("list", {"listed": []}),
        ("list", {"listed": [{"sessionId": "ours", "title": "<restoration-note from asnap>"}]}),
        ("delete", {"deletion": Deletion({"result": {}}, left=["ours"])}),
        ("delete", {"deletion": Deletion({"result": {}}, left=[], own=["the agent's"])}),
        ("delete", {"deletion": Deletion({"error": {"message": "no"}}, left=[])}),
        ("login", {"refused": 0}),
        ("connection", {"killed": "agent", "lived": False}),
        ("connection", {"killed": "proxy", "outlived": True}),
    ],
)
def test_each_kind_of_loss_fails_its_own_column(column: str, changes: Json) -> None:
    assert column in lost(whole(**changes))


def test_open_call_has_to_be_shown_as_failed_and_run_once() -> None:
    opened = tool(toolCallId="call-2", rawInput={"command": "echo ran >> marker.txt"}, status="failed")
    run = whole(scenario="tool runs", replay=[*shown(), opened], ran=1)
    assert "tool calls" not in lost(run)
    assert "tool calls" in lost(dataclasses.replace(run, ran=2))
    assert "tool calls" in lost(dataclasses.replace(run, replay=[*shown(), {**opened, "status": "completed"}]))
    assert "tool calls" in lost(dataclasses.replace(run, replay=shown()))


def test_model_has_to_keep_the_summary_of_a_compaction() -> None:
    known = "question-three summary-of-all-so-far"
    conversation = [
        *shown()[:-2],
        chunk("user", "/compact"),
        chunk("user", _PROMPTS[2]),
        chunk("agent", "answer-three."),
    ]
    prompts = [*_PROMPTS[:2], "/compact", _PROMPTS[2]]
    run = whole(scenario="compaction", prompts=prompts, known=known, replay=conversation)
    assert "model knows" not in lost(dataclasses.replace(run, request=f"{known} answer-three."))
    assert "model knows" in lost(dataclasses.replace(run, request="question-three answer-three."))


def test_lost_context_is_not_counted_if_the_bare_agent_lost_it_too() -> None:
    assert "native" not in lost(whole(grade="context", second_grade=""), fine=False)
    assert "native" not in lost(whole(grade="context", second_grade="context"), fine=None)
    assert "native" in lost(whole(grade="context", second_grade="context"), fine=False)


def test_second_load_as_context_is_excused_only_where_the_agent_cannot_load_so_soon() -> None:
    run = whole(agent=AGENTS["gemini"], grade="context", second_grade="context")
    assert "native" in lost(run, fine=False)
    assert "native" not in lost(dataclasses.replace(run, scenario="as the answer is read"), fine=False)


def test_every_turn_of_a_long_session_has_to_be_known_after_a_context_restore() -> None:
    words = " ".join(f"question-{n:04d} answer-{n:04d}." for n in range(1, LONG + 1))
    run = whole(scenario="long", grade="context", request=f"{_KNOWN} {words} answer-three.")
    assert "model knows" not in lost(run, fine=None)
    forgotten = dataclasses.replace(run, request=str(run.request).replace("answer-0001.", ""))
    assert "model knows" in lost(forgotten, fine=None)


def test_memory_is_fine_if_the_bare_agent_knew_every_finished_turn_after_its_load() -> None:
    assert memory_is_fine(whole(killed="bare", request=_KNOWN)) is True
    assert memory_is_fine(whole(killed="bare", request=_KNOWN.replace("answer-one.", ""))) is False
    assert memory_is_fine(whole(killed="bare", loaded=False)) is False
    assert memory_is_fine(whole(killed="bare", loaded=False, load_problem="no load")) is None
    assert memory_is_fine(whole(killed="bare", cannot="no fork")) is None


def test_run_that_did_not_end_is_lost_in_every_column() -> None:
    assert len(lost(whole(error="session/load: nothing for 60 s"))) == len(judge(whole()))
