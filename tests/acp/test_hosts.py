"""The host suite, against every host of ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from snapshot_plugin.testing.hosts import (
    Adopting,
    AgentMemory,
    Answers,
    Loading,
    Login,
    Notes,
    Recording,
    Restarting,
    Trouble,
)


class TestProxy(Answers, Login, Loading, Adopting, AgentMemory, Notes, Recording, Trouble, Restarting):
    def command(
        self, store: Path, agent: Sequence[str], *, session: str | None = None, patience: float | None = None
    ) -> Sequence[str]:
        options = [*(["--session", session] if session else []), *(["--patience", str(patience)] if patience else [])]
        return [sys.executable, "-m", "snapshot_plugin", "run", "--store", str(store), *options, "--", *agent]
