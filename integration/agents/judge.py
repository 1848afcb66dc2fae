"""From what a run has shown to cells: kept, lost (and how), or not applicable."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from integration.agents.evidence import UNFINISHED, Evidence
from integration.agents.run import LONG
from integration.agents.scripted_model import SUMMARY

__all__ = ["COLUMNS", "Cell", "judge", "memory_is_fine", "output_of"]

COLUMNS = (
    "transcript",
    "streamed text",
    "prompt",
    "tool calls",
    "tool output",
    "model knows",
    "native",
    "list",
    "delete",
    "login",
    "connection",
)
_FINISHED = (
    ("user", "question-one"),
    ("agent", "answer-one."),
    ("user", "question-two"),
    ("agent", "before-two."),
    ("agent", "after-two."),
)
_LOGIN_NEEDED = -32000


class Cell(NamedTuple):
    """`good` is None where the question does not apply."""

    good: bool | None
    why: str = ""

    def __str__(self) -> str:
        mark = {True: "✓", False: "✗", None: "n/a"}[self.good]
        return f"{mark} {self.why}".strip()


KEPT, NOT_APPLICABLE = Cell(True), Cell(None)


class _View(NamedTuple):
    """A conversation as a client shows it."""

    spoken: tuple[tuple[str, str], ...]
    tools: dict[str, dict[str, Any]]
    told: dict[str, str]
    """All that was said of each tool call."""

    def text(self, role: str) -> str:
        return "".join(words for who, words in self.spoken if who == role)


def judge(evidence: Evidence, fine: bool | None = None) -> dict[str, Cell]:
    """One cell for each column. *fine* is what `memory_is_fine` says of the same run without the proxy."""
    if evidence.error:
        return dict.fromkeys(COLUMNS, Cell(False, evidence.error))
    if evidence.cannot:
        return dict.fromkeys(COLUMNS, Cell(None, evidence.cannot))
    seen, shown = _view(evidence.before), _view([*evidence.replay, *evidence.late])
    return {
        "transcript": _transcript(evidence, seen, shown),
        "streamed text": _streamed(evidence, seen, shown),
        "prompt": _prompt(evidence, shown),
        "tool calls": _tools(evidence, seen, shown),
        "tool output": _output(evidence, seen, shown),
        "model knows": _model(evidence, seen),
        "native": _native(evidence, fine),
        "list": _listed(evidence),
        "delete": _deleted(evidence),
        "login": _login(evidence),
        "connection": _connection(evidence),
    }


def output_of(evidence: Evidence) -> str:
    """What the finished tool call put out; it stands nowhere else."""
    return "out-two-done" if evidence.agent.shell else "Updated file /made.txt"


def _view(updates: list[dict[str, Any]]) -> _View:
    spoken: list[tuple[str, str]] = []
    tools: dict[str, dict[str, Any]] = {}
    told: dict[str, str] = {}
    for update in updates:
        kind = update.get("sessionUpdate")
        if kind in ("user_message_chunk", "agent_message_chunk"):
            content = update.get("content") or {}
            spoken.append(("user" if kind.startswith("user") else "agent", str(content.get("text", ""))))
        elif kind in ("tool_call", "tool_call_update"):
            name = str(update.get("toolCallId"))
            known = tools.setdefault(name, {})
            known.update({key: value for key, value in update.items() if value is not None})
            told[name] = told.get(name, "") + json.dumps(update, ensure_ascii=False)
    return _View(tuple(spoken), tools, told)


# What is shown --------------------------------------------------------------------------------------------


def _transcript(evidence: Evidence, seen: _View, shown: _View) -> Cell:
    if not evidence.loaded:
        return Cell(False, evidence.load_problem)
    at = 0
    for role, words in _conversation(evidence, seen):
        times = shown.text(role).count(words)
        if times != 1:
            return Cell(False, f"{words[:30]!r} {times} times")
        found = [n for n, (who, said) in enumerate(shown.spoken) if who == role and words in said]
        if found and found[0] < at:
            return Cell(False, f"{words[:30]!r} out of order")
        at = found[0] if found else at
    if foreign := _not_said(evidence, shown):
        return Cell(False, f"not the user's words: {' '.join(foreign.split())[:40]!r}")
    if _view(evidence.late).spoken:
        return Cell(False, "replay after the answer")
    return KEPT


def _conversation(evidence: Evidence, seen: _View) -> Iterator[tuple[str, str]]:
    """All turns that were finished, as (role, words)."""
    yield from _FINISHED
    if evidence.scenario in ("slash command", "compaction"):
        yield "user", evidence.prompts[2]
    if evidence.scenario == "slash command" and (answer := _slash_answer(seen)):
        yield "agent", answer
    if evidence.scenario == "long":
        for number in range(1, LONG + 1):
            yield "user", f"question-{number:04d}"
            yield "agent", f"answer-{number:04d}."
    if evidence.scenario not in UNFINISHED:
        yield "user", "question-three"
        yield "agent", "answer-three."


def _slash_answer(seen: _View) -> str:
    """The first line that the agent itself, not the model, answered a slash command with."""
    after = seen.text("agent").partition("after-two.")[2].partition("answer-three.")[0]
    return next((line for line in after.splitlines() if len(line) > 3), "")


def _not_said(evidence: Evidence, shown: _View) -> str:
    """What is shown as the user's words and is not: an agent's internal texts, or our note."""
    rest = shown.text("user")
    for words in evidence.prompts:
        rest = rest.replace(words, "", 1)
    return rest.strip()


def _streamed(evidence: Evidence, seen: _View, shown: _View) -> Cell:
    if evidence.scenario not in UNFINISHED:
        return NOT_APPLICABLE
    if not evidence.loaded:
        return Cell(False, evidence.load_problem)
    wanted = _words_of_third(evidence, seen)
    kept = sum(shown.text("agent").count(word) == 1 for word in wanted)
    return KEPT if kept == len(wanted) else Cell(False, f"{kept} of {len(wanted)} pieces")


def _words_of_third(evidence: Evidence, seen: _View) -> list[str]:
    if evidence.scenario == "mid-stream":
        return re.findall(r"three-\d{3}", seen.text("agent"))
    if evidence.scenario in UNFINISHED:
        return ["before-three."] if "before-three." in seen.text("agent") else []
    return ["answer-three."]


def _prompt(evidence: Evidence, shown: _View) -> Cell:
    if evidence.scenario not in UNFINISHED:
        return NOT_APPLICABLE
    if not evidence.loaded:
        return Cell(False, evidence.load_problem)
    times = shown.text("user").count("question-three")
    return KEPT if times == 1 else Cell(False, f"{times} times")


def _tools(evidence: Evidence, seen: _View, shown: _View) -> Cell:
    if not evidence.loaded:
        return Cell(False, evidence.load_problem)
    before = _second_tool(seen, "made.txt", output_of(evidence))
    after = _second_tool(shown, "made.txt", output_of(evidence), str((before or {}).get("toolCallId")))
    cells = [_finished_tool(before, after)]
    if evidence.scenario in ("tool runs", "permission open"):
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
    if evidence.ran != (1 if evidence.scenario == "tool runs" else 0):
        return Cell(False, f"ran {evidence.ran} times")
    opened = [shown.tools[name] for name, told in shown.told.items() if "marker.txt" in told]
    if not opened:
        return Cell(False, "open call gone")
    status = opened[-1].get("status")
    return KEPT if status == "failed" else Cell(False, f"open call shown as {status}")


def _second_tool(view: _View, *traits: str) -> dict[str, Any] | None:
    """The finished call: agents may leave out its command, leave out its output, or change its id."""
    found = (name for name, told in view.told.items() if any(trait in told for trait in traits))
    return next((view.tools[name] for name in found), None)


def _output(evidence: Evidence, seen: _View, shown: _View) -> Cell:
    """What a tool put out is shown again, and known to the model if it was."""
    output = output_of(evidence)
    if not any(output in told for told in seen.told.values()):
        return NOT_APPLICABLE
    if not evidence.loaded:
        return Cell(False, evidence.load_problem)
    lost = [] if any(output in told for told in shown.told.values()) else ["not shown"]
    if output in evidence.known and output not in (evidence.request or ""):
        lost.append("not known")
    return Cell(False, ", ".join(lost)) if lost else KEPT


# What is known --------------------------------------------------------------------------------------------


def _model(evidence: Evidence, seen: _View) -> Cell:
    if evidence.request is None:
        return Cell(False, "no request")
    wanted = [*_known(evidence), *_words_of_third(evidence, seen)]
    missing = [word for word in wanted if word not in evidence.request]
    if missing:
        return Cell(False, f"{len(missing)} of {len(wanted)} unknown")
    # once in the prompt; a call that was open has to be mentioned, too
    if evidence.scenario in ("tool runs", "permission open") and evidence.request.count("marker.txt") < 2:
        return Cell(False, "not told of the open call")
    return KEPT


def _known(evidence: Evidence) -> list[str]:
    """What the model was told with the third prompt. A compaction leaves only part of the conversation."""
    words = [words for _, words in _FINISHED] + ["question-three"]
    if evidence.scenario == "compaction":
        return [word for word in (*words, SUMMARY) if word in evidence.known]
    if evidence.scenario == "long":
        words += [word for n in range(1, LONG + 1) for word in (f"question-{n:04d}", f"answer-{n:04d}.")]
    return words


def memory_is_fine(bare: Evidence) -> bool | None:
    """Whether the agent, without us, knew all finished turns after its own load; None where it cannot be asked."""
    if bare.cannot or bare.load_problem == "no load":
        return None
    if bare.error or not bare.loaded or bare.request is None:
        return False
    done = [] if bare.scenario in UNFINISHED else ["answer-three."]
    return all(word in bare.request for word in (*_known(bare), *done))


def _native(evidence: Evidence, fine: bool | None) -> Cell:
    """The agent's own memory is used where it is fine, and a second load heals where it was not."""
    if evidence.killed == "bare" or fine is None:
        return NOT_APPLICABLE
    if fine and not evidence.grade.startswith("native"):
        return Cell(False, f"came back as {evidence.grade or 'nothing'}")
    too_soon = evidence.agent.new_minute and evidence.scenario == "as the answer is read"
    heals = evidence.second_grade.startswith("native") or too_soon
    if evidence.second_grade and not heals:
        return Cell(False, f"the second load came back as {evidence.second_grade[:60]}")
    if not evidence.grade.startswith("native"):
        return NOT_APPLICABLE
    again = _told_again(evidence)
    return Cell(False, f"told again what the agent remembers: {again[0]}") if again else KEPT


def _told_again(evidence: Evidence) -> list[str]:
    """Answers of finished turns that the model is sent more often than before the kill."""
    answers = [words for role, words in _FINISHED if role == "agent" and words in evidence.known]
    request = evidence.request or ""
    return [words for words in answers if request.count(words) > evidence.known.count(words)]


# What is listed, deleted, refused, connected ----------------------------------------------------------------


def _listed(evidence: Evidence) -> Cell:
    if evidence.listed is None:
        return NOT_APPLICABLE
    ids = [str(info.get("sessionId")) for info in evidence.listed]
    if sorted(ids) != sorted(evidence.session_ids):
        ghosts = len([each for each in ids if each not in evidence.session_ids])
        return Cell(False, f"{len(ids)} listed, {ghosts} of them ghosts")
    if any("restoration-note" in str(info.get("title")) for info in evidence.listed):
        return Cell(False, "our note is a title")
    return KEPT


def _deleted(evidence: Evidence) -> Cell:
    if evidence.deletion is None:
        return NOT_APPLICABLE
    if "error" in evidence.deletion.answer:
        return Cell(False, str(evidence.deletion.answer["error"].get("message"))[:60])
    if evidence.deletion.left:
        return Cell(False, f"{len(evidence.deletion.left)} still listed")
    if evidence.deletion.own:
        return Cell(False, f"{len(evidence.deletion.own)} left in the agent's own list")
    return KEPT


def _login(evidence: Evidence) -> Cell:
    if evidence.refused is None:
        return NOT_APPLICABLE
    if evidence.refused != _LOGIN_NEEDED:
        return Cell(False, f"session/new without login answered {evidence.refused or 'with success'}")
    return KEPT if evidence.loaded else Cell(False, evidence.load_problem)


def _connection(evidence: Evidence) -> Cell:
    if evidence.killed == "bare":
        return Cell(False, "ended")
    if evidence.outlived:
        return Cell(False, "the agent outlives its proxy")
    if evidence.lived is None:
        return NOT_APPLICABLE if evidence.outlived is None else KEPT
    return KEPT if evidence.lived else Cell(False, evidence.ended or "the next prompt failed")
