"""Suggest tags from a session's content: project, languages, tools and topics.

Only known words and paths of the project become tags. Other words of the conversation never do, so private text
does not leak into lists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, Final, Literal

from snapshot_plugin.model.content import TextBlock, ToolCallBlock
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.value import Value

__all__ = ["Suggestion", "suggest_tags"]

Kind = Literal["project", "language", "tool", "topic", "place"]


class Suggestion(Value):
    """A tag, its kind, and how often the session supports it."""

    tag: str
    kind: Kind
    count: int


_MOST: Final = {"project": 1, "language": 3, "tool": 3, "topic": 2, "place": 2}
"""The most suggestions of each kind, in the order of the result."""

_LANGUAGES: Final = {
    "bash": "shell", "c": "c", "cc": "c++", "cpp": "c++", "cs": "c#", "css": "css", "dart": "dart", "ex": "elixir",
    "exs": "elixir", "go": "go", "h": "c", "hpp": "c++", "hs": "haskell", "html": "html", "java": "java",
    "javascript": "javascript", "jl": "julia", "js": "javascript", "jsx": "javascript", "kt": "kotlin",
    "lua": "lua", "ml": "ocaml", "php": "php", "pl": "perl", "proto": "protobuf", "py": "python", "pyi": "python",
    "python": "python", "r": "r", "rb": "ruby", "rs": "rust", "ruby": "ruby", "rust": "rust", "scala": "scala",
    "scss": "css", "sh": "shell", "shell": "shell", "sql": "sql", "svelte": "svelte", "swift": "swift",
    "tf": "terraform", "ts": "typescript", "tsx": "typescript", "typescript": "typescript", "vue": "vue",
    "zig": "zig", "zsh": "shell",
}  # fmt: skip
"""File endings and names of code fences."""

_COMMANDS = """
    ansible aws az bazel black bun cargo cmake composer curl deno docker eslint flake8 flyctl gcloud gh git go
    gradle helm jest jq kubectl make maven meson mvn mypy mysql nginx nix node npm npx nvim pip playwright pnpm
    podman poetry prettier psql pulumi pytest redis-cli ruff rustc sqlite3 ssh systemctl terraform tox tsc uv vite
    vitest webpack yarn
"""
_TOOLS: Final = frozenset(_COMMANDS.split())
_TOPICS: Final = {
    "bug": r"bugs?|bugfix(?:es)?|fix(?:es|ed|ing)?|broken|crash(?:es|ed|ing)?|traceback|stack ?trace|regressions?",
    "tests": r"(?:unit |integration )?tests?|coverage|flaky",
    "refactoring": r"refactor(?:s|ed|ing|ings)?|clean ?up|rename[ds]?",
    "docs": r"docs?|documentation|readme|docstrings?|changelog",
    "performance": r"performance|slow(?:er|ly)?|faster|latency|profil(?:e|er|ing)|benchmarks?|memory leaks?",
    "security": r"security|vulnerabilit(?:y|ies)|cve|xss|csrf|injection|encrypt(?:ion|ed)?",
    "deployment": r"deploy(?:s|ed|ing|ment|ments)?|release[sd]?|rollback|kubernetes|ci",
    "database": r"databases?|migrations?|schemas?|quer(?:y|ies)",
    "frontend": r"frontend|css|layout|react|components?|ui",
    "api": r"apis?|endpoints?|rest|graphql|webhooks?",
    "auth": r"auth|authentication|authori[sz]ation|log ?ins?|oauth|tokens?|passwords?",
}
_TOPIC: Final = {name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, words in _TOPICS.items()}
_FENCE: Final = re.compile(r"^ {0,3}(?:```|~~~)([A-Za-z+#]{1,12})\b", re.MULTILINE)
_WORD: Final = re.compile(r"[a-z][a-z0-9._-]{1,24}")
_BETWEEN: Final = re.compile(r"&&|\|\||[;|\n]")
_HARMLESS: Final = frozenset({"sudo", "env", "time", "exec", "then", "do", "xargs", "command"})
_COMMON_NAMES = """
    src source lib libs app apps pkg packages test tests spec docs doc bin build dist target node_modules vendor
    venv site-packages home users user root tmp var usr etc opt work workspace repo repos code projects project
    dev main index init readme
"""
_ANYWHERE: Final = frozenset(_COMMON_NAMES.split())
_ENOUGH: Final = 2
"""The least occurrences of a topic or place."""


def suggest_tags(snapshot: SessionSnapshot) -> tuple[Suggestion, ...]:
    """Suggested tags that the session does not have yet; the strongest first within each kind."""
    paths = [path for call in _calls(snapshot) for path in _paths(call)]
    found: dict[Kind, Counter[str]] = {
        "project": Counter(_project(snapshot)),
        "language": Counter(_languages(snapshot, paths)),
        "tool": Counter(tool for call in _calls(snapshot) for tool in _commands(call)),
        "topic": _often(Counter(_topics(snapshot))),
        "place": _often(Counter(_places(snapshot, paths))),
    }
    taken = {tag.lower() for tag in snapshot.tags}
    out: list[Suggestion] = []
    for kind, counts in found.items():
        free = {tag: count for tag, count in counts.items() if tag not in taken}
        best = sorted(free, key=lambda tag: (-free[tag], tag))[: _MOST[kind]]
        out += [Suggestion(tag=tag, kind=kind, count=counts[tag]) for tag in best]
        taken.update(best)
    return tuple(out)


def _often(counts: Counter[str]) -> Counter[str]:
    return Counter({tag: count for tag, count in counts.items() if count >= _ENOUGH})


def _calls(snapshot: SessionSnapshot) -> Iterator[ToolCallBlock]:
    for message in snapshot.messages:
        yield from (block for block in message.content if isinstance(block, ToolCallBlock))


def _project(snapshot: SessionSnapshot) -> list[str]:
    name = PurePosixPath(snapshot.config.cwd or "").name.lower()
    return [name] if _WORD.fullmatch(name) and name not in _ANYWHERE else []


def _paths(call: ToolCallBlock) -> Iterator[PurePosixPath]:
    """The files that a tool call names in its locations, input and diffs."""
    named: list[Any] = [call.raw_input]
    for several in (call.locations, call.content):
        named += several if isinstance(several, list | tuple) else ()
    for entry in named:
        for key in ("path", "file_path", "filePath", "abs_path"):
            value = entry.get(key) if isinstance(entry, dict) else None
            if isinstance(value, str):
                yield PurePosixPath(value.replace("\\", "/"))


def _languages(snapshot: SessionSnapshot, paths: Iterable[PurePosixPath]) -> Iterator[str]:
    endings = (path.suffix.lower().removeprefix(".") for path in paths)
    fences = (fence.lower() for text in _texts(snapshot) for fence in _FENCE.findall(text))
    yield from (_LANGUAGES[name] for name in (*endings, *fences) if name in _LANGUAGES)


def _texts(snapshot: SessionSnapshot, *, by_user: bool = False) -> Iterator[str]:
    for message in snapshot.messages:
        if not by_user or message.role == "user":
            yield from (block.text for block in message.content if isinstance(block, TextBlock))


def _commands(call: ToolCallBlock) -> Iterator[str]:
    given = call.raw_input
    line = given.get("command", given.get("cmd")) if isinstance(given, dict) else None
    if isinstance(line, list | tuple):
        line = " ".join(map(str, line))
    for part in _BETWEEN.split(line) if isinstance(line, str) else ():
        words = (word for word in part.split() if word not in _HARMLESS and "=" not in word)
        name = PurePosixPath(next(words, "")).name
        if name in _TOOLS:
            yield name


def _topics(snapshot: SessionSnapshot) -> Iterator[str]:
    """The topics of the user's messages; a message counts once per topic."""
    for text in _texts(snapshot, by_user=True):
        yield from (name for name, words in _TOPIC.items() if words.search(text))


def _places(snapshot: SessionSnapshot, paths: Iterable[PurePosixPath]) -> Iterator[str]:
    """Directories inside the project, by name."""
    cwd = PurePosixPath(snapshot.config.cwd or "/")
    for path in paths:
        inside = path.relative_to(cwd) if path.is_relative_to(cwd) else path if not path.is_absolute() else None
        for name in inside.parts[:-1] if inside else ():
            if _WORD.fullmatch(name.lower()) and name.lower() not in _ANYWHERE:
                yield name.lower()
