"""Record an agent's failed tool calls as errors in the memory of its project (``asnap run --learn``).

For hosts without an event loop: `ErrorLearner` never blocks its caller on a disk, and never raises.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from snapshot_plugin.errors import InvalidInput, SnapshotError
from snapshot_plugin.manager.places import user_state_dir
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.memory.engine import MemoryEngine
from snapshot_plugin.memory.entries import KINDS
from snapshot_plugin.memory.files import ERRORS
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.place import find_project
from snapshot_plugin.memory.privacy import without_secrets

__all__ = ["ErrorLearner", "error_in"]

INTERVAL: Final = 2.0
_MOST_CALLS: Final = 1000
_LONGEST: Final = 2000
_SAID: Final = ("error", "message", "stderr", "output")
_log = logging.getLogger(__name__)


def error_in(update: Mapping[str, Any], title: str | None = None) -> dict[str, Any] | None:
    """What a tool call's update says about an error, as `ProjectMemory.save` takes it; None if it did not fail."""
    if update.get("status") != "failed":
        return None
    title = str(update.get("title") or title or update.get("kind") or "a tool call")
    blocks = update.get("content")
    texts = [_text(block, "content", "text") for block in (blocks if isinstance(blocks, Sequence) else ())]
    output = update.get("rawOutput")  # some agents put the error only there
    raw = output if isinstance(output, str) else next(filter(None, (_text(output, name) for name in _SAID)), "")
    said = ("\n".join(filter(None, texts)) or raw)[:_LONGEST].strip()
    return {"message": said or f"{title} failed", "tool": title[:200], "source_of_error": "tool call"}


def _text(value: Any, *path: str) -> str:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


class ErrorLearner:
    """Records failed tool calls. `observe` from any thread, `close` at the end.

    The errors are written every *interval* seconds, in a thread of its own for each project.
    """

    def __init__(self, *, state: Path | None = None, clock: Clock = utc_now, interval: float = INTERVAL) -> None:
        self._state = state or user_state_dir(os.environ)
        self._clock, self._interval = clock, interval
        self._titles: OrderedDict[str, str] = OrderedDict()
        self._engines: dict[Path, MemoryEngine] = {}

    def observe(self, update: Mapping[str, Any], cwd: Callable[[], str | None]) -> bool:
        """Record one ``session/update``; True if it was a failed tool call in a project.

        *cwd* returns the session's working directory; it is called only if a tool call failed.
        """
        if update.get("sessionUpdate") not in ("tool_call", "tool_call_update"):
            return False
        call, title = str(update.get("toolCallId")), update.get("title")
        if isinstance(title, str):
            self._titles[call] = title
            while len(self._titles) > _MOST_CALLS:
                self._titles.popitem(last=False)
        found = error_in(update, self._titles.get(call))
        place = cwd() if found else None
        engine = self._engine(place) if place else None
        if engine is None:
            return False
        engine.queue.append(engine.change("save", KINDS[ERRORS].document, without_secrets(found)[0]))
        return True

    def flush(self) -> None:
        """Write the observed errors, if the disk allows. Never raises."""
        for engine in list(self._engines.values()):
            try:
                engine.flush()
            except SnapshotError as error:
                _log.warning("failed tool calls are not stored: %s", error.message)

    def close(self) -> None:
        """Write the rest and stop."""
        self.flush()
        for engine in self._engines.values():
            engine.close()

    def _engine(self, cwd: str) -> MemoryEngine | None:
        try:
            project = find_project(cwd).directory
        except InvalidInput:
            return None
        if project not in self._engines:
            engine = MemoryEngine(project, limits=MemoryLimits(), state=self._state, clock=self._clock)
            engine.session = engine.view().meta["session_count"]
            engine.keep_flushing(self._interval)
            self._engines[project] = engine
        return self._engines[project]
