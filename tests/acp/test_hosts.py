"""The host suite, against every host of ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from snapshot_plugin.testing.hosts import (
    Adopting,
    AgentMemory,
    Answers,
    HostStage,
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
        options = [
            *(["--session", session] if session else []),
            *(["--patience", str(patience)] if patience else []),
        ]
        return [sys.executable, "-m", "snapshot_plugin", "run", "--store", str(store), *options, "--", *agent]


class Hosted(HostStage):
    """A host that `tests.acp.hosted` runs."""

    kind: str

    def command(
        self, store: Path, agent: Sequence[str], *, session: str | None = None, patience: float | None = None
    ) -> Sequence[str]:
        return [
            sys.executable,
            "-m",
            "tests.acp.hosted",
            self.kind,
            str(store),
            str(patience or 60),
            session or "",
            *agent,
        ]


class TestChain(Hosted, Answers, Login, Loading, Adopting, AgentMemory, Notes, Recording, Trouble):
    kind = "conductor"


class TestSdkClient(Hosted, Answers, Login, Loading, AgentMemory, Notes, Recording, Trouble):
    kind = "sdk-client"


class TestSdkClientThatRestarts(Hosted, Restarting):
    """As an orchestrator has it that starts the agent itself and says how."""

    kind = "sdk-restarts"


class TestSdkAgent(Hosted, Answers, Login, Loading, Notes, Recording, Trouble):
    """The author's code is asked for new sessions only, so its own memory is not used."""

    kind = "sdk-agent"
