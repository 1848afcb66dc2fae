"""From what a run has shown to cells: kept, lost (and how), or no question."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from integration.agents.run import Evidence

__all__ = ["COLUMNS", "Cell", "judge"]

COLUMNS = ("transcript", "streamed text", "prompt", "tool calls", "model knows", "connection")
_FINISHED = (
    ("user", "question-one"),
    ("agent", "answer-one."),
    ("user", "question-two"),
    ("agent", "before-two."),
    ("agent", "after-two."),
)
_THIRD = (("user", "question-three"), ("agent", "answer-three."))
_UNFINISHED = ("mid-stream", "tool runs", "permission open")


class Cell(NamedTuple):
    """`good` is None where there is nothing to ask."""

    good: bool | None
    why: str = ""

    def __str__(self) -> str:
        mark = {True: "✓", False: "✗", None: "n.a."}[self.good]
        return f"{mark} {self.why}".strip()


KEPT, NO_QUESTION = Cell(True), Cell(None)


class _View(NamedTuple):
    """A conversation as a client shows it."""

    spoken: tuple[tuple[str, str], ...]
    tools: dict[str, dict[str, Any]]

    def text(self, role: str) -> str:
        return "".join(words for who, words in self.spoken if who == role)


def judge(evidence: Evidence) -> dict[str, Cell]:
    """One cell for each column."""
    if evidence.error:
        return dict.fromkeys(COLUMNS, Cell(False, evidence.error))
    seen, shown = _view(evidence.before), _view([*evidence.replay, *evidence.late])
    return {
        "transcript": _transcript(evidence, shown),
        "streamed text": _streamed(evidence, seen, shown),
        "prompt": _prompt(evidence, shown),
        "tool calls": _tools(evidence, seen, shown),
        "model knows": _model(evidence, seen),
        "connection": _connection(evidence),
    }


def _view(updates: list[dict[str, Any]]) -> _View:
    spoken: list[tuple[str, str]] = []
    tools: dict[str, dict[str, Any]] = {}
    for update in updates:
        kind = update.get("sessionUpdate")
        if kind in ("user_message_chunk", "agent_message_chunk"):
            content = update.get("content") or {}
            spoken.append(("user" if kind.startswith("user") else "agent", str(content.get("text", ""))))
        elif kind in ("tool_call", "tool_call_update"):
            known = tools.setdefault(str(update.get("toolCallId")), {})
            known.update({key: value for key, value in update.items() if value is not None})
    return _View(tuple(spoken), tools)


def _transcript(evidence: Evidence, shown: _View) -> Cell:
    if not evidence.loaded:
        return Cell(False, evidence.load_problem)
    wanted = _FINISHED if evidence.moment in _UNFINISHED else _FINISHED + _THIRD
    at = 0
    for role, words in wanted:
        times = shown.text(role).count(words)
        if times != 1:
            return Cell(False, f"{words} {times} times")
        found = [n for n, (who, said) in enumerate(shown.spoken) if who == role and words in said]
        if found and found[0] < at:
            return Cell(False, f"{words} out of order")
        at = found[0] if found else at
    if "restoration-note" in shown.text("user"):
        return Cell(False, "our note shown as the user's words")
    if _view(evidence.late).spoken:
        return Cell(False, "replay after the answer")
    return KEPT


def _streamed(evidence: Evidence, seen: _View, shown: _View) -> Cell:
    if evidence.moment not in _UNFINISHED:
        return NO_QUESTION
    if not evidence.loaded:
        return Cell(False, evidence.load_problem)
    wanted = _words_of_third(evidence, seen)
    kept = sum(shown.text("agent").count(word) == 1 for word in wanted)
    return KEPT if kept == len(wanted) else Cell(False, f"{kept} of {len(wanted)} pieces")


def _words_of_third(evidence: Evidence, seen: _View) -> list[str]:
    if evidence.moment == "mid-stream":
        return re.findall(r"three-\d{3}", seen.text("agent"))
    if evidence.moment in _UNFINISHED:
        return ["before-three."] if "before-three." in seen.text("agent") else []
    return ["answer-three."]


def _prompt(evidence: Evidence, shown: _View) -> Cell:
    if evidence.moment not in _UNFINISHED:
        return NO_QUESTION
    if not evidence.loaded:
        return Cell(False, evidence.load_problem)
    times = shown.text("user").count("question-three")
    return KEPT if times == 1 else Cell(False, f"{times} times")


def _tools(evidence: Evidence, seen: _View, shown: _View) -> Cell:
    if not evidence.loaded:
        return Cell(False, evidence.load_problem)
    cells = [_finished_tool(_second_tool(seen), _second_tool(shown))]
    if evidence.moment in ("tool runs", "permission open"):
        cells.insert(0, _open_tool(evidence, shown))
    lost = [cell.why for cell in cells if not cell.good]
    return Cell(False, "; ".join(lost)) if lost else KEPT


def _finished_tool(seen: dict[str, Any] | None, shown: dict[str, Any] | None) -> Cell:
    if seen is None or shown is None:
        return Cell(False, "finished call gone")
    for name in ("status", "title", "kind"):
        before, after = str(seen.get(name)), str(shown.get(name))
        if before not in after and after not in before:  # a title may be longer or shorter than it was
            return Cell(False, f"{name} “{before}” became “{after}”")
    return KEPT


def _open_tool(evidence: Evidence, shown: _View) -> Cell:
    if evidence.ran != (1 if evidence.moment == "tool runs" else 0):
        return Cell(False, f"ran {evidence.ran} times")
    opened = [tool for tool in shown.tools.values() if "marker.txt" in str(tool)]
    if not opened:
        return Cell(False, "open call gone")
    status = opened[-1].get("status")
    return KEPT if status == "failed" else Cell(False, f"open call shown as {status}")


def _second_tool(view: _View) -> dict[str, Any] | None:
    return next((tool for tool in view.tools.values() if "made.txt" in str(tool)), None)


def _model(evidence: Evidence, seen: _View) -> Cell:
    if evidence.request is None:
        return Cell(False, "no request")
    wanted = [words for _, words in _FINISHED] + ["question-three", *_words_of_third(evidence, seen)]
    missing = [word for word in wanted if word not in evidence.request]
    if missing:
        return Cell(False, f"{len(missing)} of {len(wanted)} unknown")
    # once in the prompt; a call that was open has to be mentioned, too
    if evidence.moment in ("tool runs", "permission open") and evidence.request.count("marker.txt") < 2:
        return Cell(False, "not told of the open call")
    return KEPT


def _connection(evidence: Evidence) -> Cell:
    if evidence.killed == "bare":
        return Cell(False, "ended")
    if evidence.lived is None:
        return NO_QUESTION
    return KEPT if evidence.lived else Cell(False, "ended")
