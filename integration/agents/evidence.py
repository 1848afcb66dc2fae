"""What one run has shown: filled in by `run`, read by `judge`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from integration.agents.catalog import Agent

__all__ = ["KILLED", "SCENARIOS", "UNFINISHED", "Deletion", "Evidence", "Killed", "Scenario"]

Json = dict[str, Any]
Scenario = Literal[
    "after the turn",
    "as the answer is read",
    "mid-stream",
    "tool runs",
    "permission open",
    "slash command",
    "compaction",
    "fork",
    "long",
]
Killed = Literal["bare", "agent", "proxy", "both"]
SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)
KILLED: tuple[Killed, ...] = get_args(Killed)
UNFINISHED = ("mid-stream", "tool runs", "permission open")
"""The scenarios in which the third turn does not end."""


@dataclass
class Deletion:
    """What ``session/delete`` did."""

    answer: Json
    left: list[str]
    """Ids listed afterwards, in the same process."""
    own: list[str] | None = None
    """Ids the agent lists when it is started without the proxy; None where it was not asked."""


@dataclass
class Evidence:
    """One run: an agent, a scenario and a victim, and all that was seen."""

    agent: Agent
    scenario: Scenario
    killed: Killed
    prompts: list[str] = field(default_factory=list)
    """What the user said."""
    before: list[Json] = field(default_factory=list)
    """Updates the client saw before the kill, and until the connection was silent."""
    known: str = ""
    """What the model was sent with the third prompt."""
    session_ids: list[str] = field(default_factory=list)
    """The sessions that were made; the last one is loaded."""
    loaded: bool = False
    load_problem: str = ""
    replay: list[Json] = field(default_factory=list)
    late: list[Json] = field(default_factory=list)
    """Updates that came after the load was answered."""
    request: str | None = None
    """What the model was sent with the next prompt."""
    lived: bool | None = None
    """Whether the client's connection survived the agent; None where that is no question."""
    ended: str = ""
    """Why it did not: it ended, or nothing came in time."""
    outlived: bool | None = None
    """Whether the agent survived its proxy; None where that is no question."""
    waited: float | None = None
    """Seconds until the interrupted prompt was answered."""
    refused: int | None = None
    """The error code of ``session/new`` before the login; 0 if it was not refused, None without a login."""
    ran: int = 0
    """How often the tool of the third turn ran."""
    grade: str = ""
    """How the proxy says the session came back: after the restart, or else in the answer to the load."""
    second_grade: str = ""
    """The same for one more load, in a later process."""
    tried: list[str] = field(default_factory=list)
    """What the proxy says it tried, and what came of it."""
    listed: list[Json] | None = None
    """The sessions listed by a process that did not restore the session; None where the agent cannot list."""
    deletion: Deletion | None = None
    cannot: str = ""
    """Why the agent cannot be put into this scenario."""
    error: str = ""
    """The step that did not end, and why."""
    seconds: float = 0
    """How long the run took."""
    notes: list[str] = field(default_factory=list)
