"""The host suite, against every host of ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.golden.transcripts import TRANSCRIPTS, Transcribed, file_of
from tests.hosts import (
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
from tests.tries import EVERYTHING


class TestProxy(Transcribed, Answers, Login, Loading, Adopting, AgentMemory, Notes, Recording, Trouble, Restarting):
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


class TestChain(Hosted, Answers, Loading):
    """The same program as `TestProxy`: only the way to the agent differs, in both directions and in its ids."""

    kind = "conductor"


class TestWholeChain(Hosted, Login, Adopting, AgentMemory, Notes, Recording, Trouble):
    """The other cases, where CI asks for everything. `TestProxy` shows how it grades the agents' habits."""

    __test__ = EVERYTHING
    kind = "conductor"
    test_a_habit_of_real_agents_leads_to_the_right_grade = None  # type: ignore[assignment]


class TestSdkClient(Hosted, Answers, Login, Loading, Recording, Trouble):
    kind = "sdk-client"


class TestWholeSdkClient(Hosted, AgentMemory, Notes):
    """What `acp.core` decides for every host, where CI asks for everything: `TestProxy` has all of it."""

    __test__ = EVERYTHING
    kind = "sdk-client"


class TestSdkClientThatRestarts(Hosted, Restarting):
    """As an orchestrator has it that starts the agent itself and says how."""

    kind = "sdk-restarts"


class TestSdkAgent(Hosted, Answers, Login, Loading, Recording):
    """The author's code is asked for new sessions only, so its own memory is not used."""

    kind = "sdk-agent"


class TestWholeSdkAgent(Hosted, Notes, Trouble):
    """As `TestWholeSdkClient`."""

    __test__ = EVERYTHING
    kind = "sdk-agent"


class TestProvider(Hosted, Loading):
    """An orchestrator whose sessions `AcpProvider` starts, each with an agent of its own.

    Logging in and answering malformed requests are the orchestrator's business.
    """

    kind = "provider"


class TestWholeProvider(Hosted, AgentMemory, Notes, Recording, Trouble):
    """The other cases, where CI asks for everything: `AcpProvider` records with the host of `TestSdkClient`.

    Four are left out: it lists sessions without an agent, `create_or_resume_session` refuses to start where the
    store cannot be read, and requests of an agent that loads a session go to the orchestrator's own client. Nor
    does it grade the agents' habits by itself.
    """

    __test__ = EVERYTHING
    kind = "provider"
    test_a_habit_of_real_agents_leads_to_the_right_grade = None  # type: ignore[assignment]
    test_a_session_without_a_title_is_listed_with_its_first_prompt = None  # type: ignore[assignment]
    test_the_agents_own_names_are_never_listed_beside_ours_and_deleted_with_them = None  # type: ignore[assignment]
    test_a_disk_that_refuses_the_first_write_is_asked_again_and_the_client_is_told = None  # type: ignore[assignment]
    test_requests_of_the_agent_during_a_load_name_the_session_as_the_client_does = None  # type: ignore[assignment]


def test_every_golden_transcript_belongs_to_a_case() -> None:
    cases = {file_of(name).stem for name in dir(TestProxy) if name.startswith("test_")}
    kept = [file.stem for file in TRANSCRIPTS.iterdir()]

    assert kept
    assert [name for name in kept if not name.startswith(tuple(cases))] == []
