"""The sessions that the browser is tested with: ordinary ones, a long one, a hostile one, a damaged one."""

from __future__ import annotations

import base64
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from snapshot_plugin.model import Message, SessionSnapshot
from snapshot_plugin.model.content import ImageBlock, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.snapshot import AgentInfo, Metrics, Parent, PlanEntry, SessionConfig
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["LONG", "fill"]

LONG = "long-session"
_TITLES = ("fix the login redirect", "speed up the index", "dark mode for the dashboard", "upgrade pydantic to 2.14")
_AGENTS = ("claude-code", "codex", "gemini", "opencode")
_PROJECTS = ("shop", "parser", "website", "billing")
_HOSTILE = (
    "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>",
    "![x](http://127.0.0.1:9/leak.png) [click](javascript:window.hacked=1) <svg onload=window.hacked=1>",
    "\u202eevil\u202c \x1b[31mred\x1b[0m \u200bhidden",
)


def _png(width: int = 96, height: int = 48) -> str:
    rows = b"".join(b"\0" + bytes((x * 2, y * 5, 160)) * 1 for y in range(height) for x in [0] for _ in [0])
    rows = b"".join(b"\0" + b"".join(bytes((40 + x, 90 + y, 200)) for x in range(width)) for y in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 2, 0, 0, 0))
    body = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(body).decode()


def _turn(n: int, when: datetime) -> tuple[Message, Message]:
    path = f"src/module_{n % 17}/handler.py"
    old = "def handle(request):\n    user = find(request)\n    return redirect(user.home)\n"
    new = "def handle(request):\n    user = find(request)\n    if user is None:\n        raise Forbidden\n    return redirect(user.home)\n"
    answer = (
        f"I looked at `{path}`: the session is **lost** after the redirect.\n\n"
        f"- the cookie is set for the wrong path\n- turn {n} is covered by a test now\n\n"
        "```python\nassert client.get('/home').status_code == 200\n```\n"
    )
    call = ToolCallBlock(
        tool_call_id=f"edit-{n}",
        title=f"Edit {path}",
        kind="edit",
        status="completed" if n % 7 else "failed",
        content=[{"type": "diff", "path": path, "oldText": old, "newText": new}],
        locations=[{"path": path, "line": 3}],
        raw_input={"path": path},
    )
    ran = ToolCallBlock(
        tool_call_id=f"run-{n}",
        title="pytest -q tests/test_login.py",
        kind="execute",
        status="completed",
        raw_input={"command": "pytest -q tests/test_login.py"},
        content=[{"type": "content", "content": {"type": "text", "text": "....\n4 passed in 0.31s"}}],
    )
    user = Message(role="user", content=(TextBlock(text=f"Why is the login lost in step {n}? Please fix it and add a test."),), timestamp=when)
    thought = ThoughtBlock(text="The cookie path looks wrong. I check the handler first.")
    said = Message(role="assistant", content=(thought, TextBlock(text=answer), call, ran), timestamp=when + timedelta(seconds=40))
    return user, said


def _session(name: str, turns: int, begin: datetime, **fields: Any) -> SessionSnapshot:
    messages = [m for n in range(turns) for m in _turn(n, begin + timedelta(minutes=n))]
    number = zlib.crc32(name.encode())
    defaults: dict[str, Any] = {
        "title": _TITLES[number % 4],
        "agent": AgentInfo(name=_AGENTS[number % 4], version="1.4.2", command=(_AGENTS[number % 4], "acp")),
        "config": SessionConfig(cwd=f"/home/me/{_PROJECTS[number // 7 % 4]}", model="sonnet", mode="code"),
        "metrics": Metrics(turns=turns, input_tokens=turns * 900, output_tokens=turns * 250, total_tokens=turns * 1150, cost=turns * 0.004, currency="USD"),
        "plan": (PlanEntry(content="find the cause", status="completed"), PlanEntry(content="write a test", status="in_progress"), PlanEntry(content="fix it")),
        "tags": ("backend",) if number % 3 == 0 else (),
        "metadata": {"acp": {"capabilities": {"load": True}}},
        "agent_session_id": f"agent-{name}",
    }
    end = begin + timedelta(minutes=turns)
    return SessionSnapshot(session_id=name, created_at=begin, updated_at=end, messages=tuple(messages), provider_type="acp", **{**defaults, **fields})


async def fill(place: Path, *, sessions: int = 40, long_messages: int = 5000) -> None:
    """Make the store."""
    now = datetime.now(UTC).replace(microsecond=0)
    async with FilesystemStore(place, background=False) as store:
        for n in range(sessions):
            begin = now - timedelta(days=2 + n // 3, hours=n % 7)
            snapshot = _session(f"session-{n:04}", 2 + n % 6, begin)
            for turns in range(1, 3 + n % 6):
                await store.save(snapshot.evolve(messages=snapshot.messages[: turns * 2]), trigger="turn_end", base=turns - 1)
        picture = Message(role="user", content=(TextBlock(text="This is how it looks:"), ImageBlock(data=_png(), mime_type="image/png"), ImageBlock(data="AAAA", mime_type="image/png")))
        tree = _session("pictures", 3, now - timedelta(days=1), title="a screenshot and a fork", tags=("review", "backend"), pinned=True)
        await store.save(tree.evolve(messages=(*tree.messages, picture)), base=0, trigger="turn_end")
        fork = tree.evolve(session_id="the-fork", title="a screenshot and a fork (other way)", parent=Parent(session_id="pictures", seq=1, message_index=4), messages=(*tree.messages[:4], *_turn(99, now - timedelta(hours=20))))
        await store.save(fork, base=0, trigger="fork")
        hostile = _session("hostile", 0, now - timedelta(hours=9), title=_HOSTILE[0], tags=("<b>x</b>",))
        said = tuple(Message(role="assistant" if n % 2 else "user", content=(TextBlock(text=words),)) for n, words in enumerate(_HOSTILE))
        await store.save(hostile.evolve(messages=said), base=0, trigger="turn_end")
        damaged = _session("damaged", 2, now - timedelta(hours=8), title="damaged one")
        await store.save(damaged, base=0, trigger="turn_end")
        long = _session(LONG, long_messages // 2, now - timedelta(hours=6 + long_messages // 120), title=f"the long one: {long_messages:,} messages")
        step = max(2, long_messages // 100)
        for seq, count in enumerate(range(step, long_messages + 1, step)):
            tags = ("before-refactor",) if seq % 30 == 20 else ()
            await store.save(long.evolve(messages=long.messages[:count]), base=seq, trigger="turn_end", tags=tags)
    for file in (place / "sessions").glob("*damaged*/*.snap.gz"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(bytes(data))
