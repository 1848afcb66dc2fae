"""A fixed store, and what makes answers the same on every machine: for the golden answers."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from snapshot_plugin import FilesystemStore, Message, SessionSnapshot
from snapshot_plugin.manager.branches import branched, save_branch
from snapshot_plugin.model import AgentInfo, McpServer, Metrics, PlanEntry, SessionConfig, TextBlock, ToolCallBlock
from snapshot_plugin.testing import FixedClock

__all__ = ["NOW", "Frozen", "Scrubber", "fill", "pretty"]

START = datetime(2026, 1, 31, 9, tzinfo=UTC)
NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
"""When commands are called."""
_ULID = re.compile(r"(?<![0-9a-z])01[0-9a-hjkmnp-tv-z]{24}(?![0-9a-z])")
_AGENTS_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_SIZE = re.compile(r"\b\d+(?:\.\d+)? (?:B|KiB|MiB)\b")
_FACTOR = re.compile(r"\b\d+\.\d+x")
_DIGEST = re.compile(r'("sha256": )"[0-9a-f]{64}"')
_DIGIT = re.compile(r"\d")
_NUMBERS = re.compile(r'("(?:\w*bytes\w*|age_seconds)": )[\d.]+')


class Frozen:
    """Stands for `datetime` where a command asks for the time of day."""

    @staticmethod
    def now(_zone: object = None) -> datetime:
        """The moment at which every golden command is called."""
        return NOW


async def fill(place: Path) -> None:
    """Write the fixed store: a session with tools and a plan, two branches, a pin, a secret, damage."""
    clock = FixedClock(START)
    async with FilesystemStore(place, background=False, clock=clock) as store:
        asked = Message(id="m1", role="user", content="Why does the login fail?", timestamp=START)
        call = ToolCallBlock(tool_call_id="t1", title="Read auth.py", kind="read", status="completed")
        answer = Message(
            id="m2",
            role="assistant",
            content=(TextBlock(text="The token expires too early."), call),
            timestamp=START,
        )
        first = SessionSnapshot(
            session_id="fix-auth-0001",
            title="Fix the login",
            provider_type="acp",
            created_at=START,
            updated_at=START,
            agent=AgentInfo(name="opencode", version="1.2.3", command=("opencode", "acp")),
            config=SessionConfig(
                cwd="/code/shop", mode="code", model="large-1", mcp_servers=(McpServer(name="asnap"),)
            ),
            messages=(asked, answer),
            metrics=Metrics(turns=1, input_tokens=1200, output_tokens=300, total_tokens=1500),
        )
        await store.save(first, trigger="turn")
        clock.advance(timedelta(minutes=10))
        more = (
            Message(id="m3", role="user", content="Make it a day.", timestamp=clock()),
            Message(id="m4", role="assistant", content="Done: the walrus approves.", timestamp=clock()),
        )
        plan = (PlanEntry(content="Change the limit", status="completed"), PlanEntry(content="Write a test"))
        second = first.append(*more, now=clock(), plan=plan, tags=("backend",))
        await store.save(second, trigger="turn", tags=["pre-deploy"])
        for name, text in (("branch-one-0002", "And a week?"), ("branch-two-0003", "And an hour?")):
            clock.advance(timedelta(minutes=10))
            new = await branched(store, "fix-auth-0001", as_id=name, now=clock(), title=f"Branch: {text}")
            new = new.append(Message(id=f"of-{name}", role="user", content=text, timestamp=clock()), now=clock())
            await save_branch(store, new, trigger="fork")
        clock.advance(timedelta(minutes=10))
        secret = "the key is sk-ant-api03-" + "aB3dE5fG7hJ9kL1mN" * 5
        await store.save(
            SessionSnapshot(
                session_id="has-a-secret-0004",
                title="Deploy",
                provider_type="openai-agents",
                created_at=clock(),
                updated_at=clock(),
                pinned=True,
                messages=(Message(id="m5", role="user", content=secret, timestamp=clock()),),
            )
        )
        clock.advance(timedelta(minutes=10))
        await store.save(first.evolve(session_id="damaged-0005", title="Broken", updated_at=clock()))
    (file,) = (place / "sessions" / "damaged-0005").glob("*.snap.gz")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


class Scrubber:
    """Replaces what is not part of an answer: places, new ids, the time of day, sizes in bytes, the version."""

    def __init__(self, home: Path) -> None:
        self._home, self._ids = str(home), dict[str, str]()

    def __call__(self, text: str) -> str:
        """The text as it is kept. The same new id becomes the same word, also in later texts."""
        if self._home in text:  # the widths of columns depend on the place, which is another one in each run
            lines = text.replace(self._home, "/home/ann").split("\n")
            text = "\n".join(re.sub(r"(?<=\S) {2,}", "  ", line).rstrip() for line in lines)
        text = text.replace(version("snapshot-plugin"), "VERSION")
        text = _ULID.sub(lambda found: self._ids.setdefault(found[0], f"NEW-ID-{len(self._ids) + 1}"), text)
        text = _AGENTS_ID.sub(lambda found: self._ids.setdefault(found[0], f"NEW-ID-{len(self._ids) + 1}"), text)
        for numbers in (_SIZE, _FACTOR):
            text = numbers.sub(lambda found: _DIGIT.sub("#", found[0]), text)
        text = _DIGEST.sub(r'\g<1>"SHA256"', text)
        return _NUMBERS.sub(r"\g<1>0", _TIME.sub(_time, text))


def _time(found: re.Match[str]) -> str:
    moment = datetime.fromisoformat(found[0])
    return "THE-TIME" if moment > NOW + timedelta(days=1) else found[0]


def pretty(document: Any) -> str:
    """JSON that reads well in a review."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
