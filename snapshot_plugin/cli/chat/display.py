"""Print what the agent does to the terminal as it happens: text, thoughts, tool calls, plans.

Text is not kept. Only the tool calls of this run are, so that the user can open one by its number.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from snapshot_plugin.cli.chat.streaming import MarkdownStream, WordWrap
from snapshot_plugin.operations.conversation import detail_of, diff_lines
from snapshot_plugin.operations.text import count, cut, plain

__all__ = ["Display"]

Json = Mapping[str, Any]
_MARKS = {"completed": ("✓", "green"), "failed": ("✗", "red")}
_STEPS = {"completed": "✓", "in_progress": "▸"}
_OPENED = 200


class Display:
    """The screen of one chat."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour
        self._stream, self._wrap = MarkdownStream(colour=colour), WordWrap()
        self._kind = ""
        self._at_line_start = True
        self._tools: dict[str, dict[str, Any]] = {}
        self.muted = False
        """Set while a session is loaded, because the agent then replays old messages."""
        self.model = self.mode = self.title = ""
        self.used = self.size = 0

    # Writing ------------------------------------------------------------------------------------------------

    def line(self, text: str = "", **style: Any) -> None:
        """Print a line from asnap itself."""
        self.lines([self._styled(text, style)])

    def lines(self, lines: Iterable[str], *, indent: int = 0) -> None:
        """Print lines that belong together, such as a message. Continued lines are indented by *indent*."""
        self._finish()
        wrap = WordWrap(indent)
        self._write("".join(wrap.feed(f"{line}\n", self.columns) for line in lines))

    def _styled(self, text: str, style: Mapping[str, Any]) -> str:
        return click.style(text, **style) if style and self._colour else text

    def aside(self, text: str) -> None:
        """Print a line that the recorder process wrote to stderr."""
        if text.strip():
            self.line(plain(text, lines=True), dim=True)

    def _write(self, text: str) -> None:
        if text:
            self._at_line_start = text.endswith("\n")
            sys.stdout.write(text)
            sys.stdout.flush()

    def _finish(self) -> None:
        """End the streamed text, so that other output can follow."""
        self._write(self._wrap.feed(self._stream.end(), self.columns))
        self._wrap = WordWrap()
        if self._kind == "thought" and self._colour:
            self._write("\x1b[0m")
        if not self._at_line_start:
            self._write("\n")
        self._kind = ""

    def end_turn(self) -> None:
        """End the output of a turn."""
        self._finish()

    # What the agent does --------------------------------------------------------------------------------------

    def updated(self, params: Json) -> None:
        """Show one ``session/update``."""
        update = params.get("update")
        if not isinstance(update, Mapping):
            return
        kind = str(update.get("sessionUpdate"))
        self._learn(kind, update)
        if self.muted:
            return
        if kind in ("agent_message_chunk", "agent_thought_chunk"):
            self._chunk("words" if kind == "agent_message_chunk" else "thought", update.get("content"))
        elif kind in ("tool_call", "tool_call_update"):
            self._tool(update)
        elif kind == "plan":
            self.plan(update.get("entries"))

    def _learn(self, kind: str, update: Json) -> None:
        if kind == "current_mode_update":
            self.mode = plain(str(update.get("currentModeId") or ""))
        elif kind == "session_info_update" and isinstance(update.get("title"), str):
            self.title = plain(update["title"])
        elif kind == "usage_update":
            used, size = update.get("used"), update.get("size")
            self.used = used if isinstance(used, int) else self.used
            self.size = size if isinstance(size, int) else self.size
        elif kind == "config_option_update":
            self.learn_settings(update)

    def learn_settings(self, result: Json) -> None:
        """Store the mode and model that a new or loaded session reports."""
        modes, models = result.get("modes"), result.get("models")
        if isinstance(modes, Mapping):
            self.mode = plain(str(modes.get("currentModeId") or ""))
        if isinstance(models, Mapping):
            self.model = plain(str(models.get("currentModelId") or ""))
        for option in result.get("configOptions") or ():
            if isinstance(option, Mapping) and option.get("category") == "model":
                self.model = plain(str(option.get("currentValue") or ""))

    def _chunk(self, kind: str, content: Any) -> None:
        if not isinstance(content, Mapping):
            return
        if content.get("type") != "text":
            self.line(f"[{plain(str(content.get('type')))}]", dim=True)
            return
        if kind != self._kind:
            self._finish()
            self._kind = kind
            if kind == "thought" and self._colour:
                self._write("\x1b[2m")
        text = str(content.get("text", ""))
        shown = plain(text, lines=True) if kind == "thought" else self._stream.feed(text)
        self._write(self._wrap.feed(shown, self.columns))

    def _tool(self, update: Json) -> None:
        name = str(update.get("toolCallId"))
        known = self._tools.setdefault(name, {"number": len(self._tools) + 1})
        before = known.get("status"), known.get("title")
        known.update({key: value for key, value in update.items() if value is not None})
        now = known.get("status"), known.get("title")
        is_over = now[0] in _MARKS
        if before[0] is None or (is_over and now != before):
            mark, colour = _MARKS.get(str(now[0]), ("…", "yellow"))
            title = plain(str(now[1] or known.get("kind") or name))
            self.line(cut(f"{mark} [{known['number']}] {title}{_counts(known)}", self.columns - 1), fg=colour)

    def asked_about(self, call: Json) -> None:
        """Show what the agent asks permission for: the title of the tool call, and its input and changes."""
        self._tool(call)
        tool = self._tools[str(call.get("toolCallId"))]
        self.line(f"The agent asks: {plain(str(tool.get('title') or '')) or 'may it continue?'}", bold=True)
        self.open(tool["number"])  # some titles do not say what will run

    @property
    def columns(self) -> int:
        """The current width of the terminal."""
        return shutil.get_terminal_size((80, 24)).columns

    def plan(self, entries: Any) -> None:
        """Show a plan, a line for each step."""
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, Mapping):
                mark = _STEPS.get(str(entry.get("status")), "·")
                self.line(cut(f"  {mark} {plain(str(entry.get('content', '')))}", self.columns - 1), fg="cyan")

    def open(self, number: int) -> bool:
        """Show the input and output of a tool call; False if there is no such call."""
        found = next((tool for tool in self._tools.values() if tool["number"] == number), None)
        if found is None:
            return False
        self._finish()
        for at, (text, style) in enumerate(_opened(found)):
            if at == _OPENED:
                self.line("  … more in asnap show --tools", dim=True)
                break
            self._write(f"  {self._styled(text, style)}\n")  # not wrapped: it may be code
        return True

    def status(self, agent: str, restored: str) -> str:
        """The line below the prompt."""
        context = f"{count(self.used)}/{count(self.size)} tokens" if self.size else ""
        parts = [agent, self.model, self.mode and f"mode {self.mode}", context, restored]
        return cut(" · ".join(part for part in parts if part), self.columns - 2)


def _changes(tool: Json) -> Iterator[tuple[str, str, str]]:
    content = tool.get("content")
    for each in content if isinstance(content, list) else ():
        if isinstance(each, Mapping) and each.get("type") == "diff":
            yield str(each.get("path", "")), str(each.get("oldText") or ""), str(each.get("newText") or "")


def _counts(tool: Json) -> str:
    lines = [line for _, before, after in _changes(tool) for line in diff_lines(before, after)]
    plus, minus = sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)
    return f"  +{plus} -{minus}" if plus or minus else ""


def _opened(tool: Json) -> Iterator[tuple[str, dict[str, Any]]]:
    from snapshot_plugin.model.content import ToolCallBlock

    for path, before, after in _changes(tool):
        yield plain(path), {"bold": True}
        for line in diff_lines(before, after):
            yield plain(line, lines=True), _DIFF_STYLES.get(line[:1], {})
    fields = {name: tool.get(name) for name in ("toolCallId", "title", "kind", "status", "rawInput", "rawOutput")}
    rest = [each for each in tool.get("content") or () if isinstance(each, Mapping) and each.get("type") != "diff"]
    block = ToolCallBlock.model_validate({**fields, "title": fields["title"] or "", "content": rest})
    for line in plain(detail_of(block), lines=True).split("\n"):
        yield line, {"dim": True}


_DIFF_STYLES: dict[str, dict[str, Any]] = {"+": {"fg": "green"}, "-": {"fg": "red"}, "@": {"fg": "cyan"}}
