"""The sessions that the browser is tested with: ordinary ones, a long one, a hostile one, a damaged one."""

from __future__ import annotations

import base64
import shutil
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from snapshot_plugin.codec.frame import encode_frame, open_frame
from snapshot_plugin.codec.sources import Passphrase
from snapshot_plugin.model import Message, SessionSnapshot
from snapshot_plugin.model.content import ImageBlock, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.snapshot import AgentInfo, Metrics, Parent, PlanEntry, SessionConfig
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["LONG", "fill", "fill_encrypted", "talk"]

LONG = "long-session"
_TITLES = (
    "fix the login redirect",
    "speed up the index",
    "dark mode for the dashboard",
    "upgrade pydantic to 2.14",
)
_AGENTS = ("claude-code", "codex", "gemini", "opencode")
_PROJECTS = ("shop", "parser", "website", "billing")
_PLAN = (
    PlanEntry(content="find the cause", status="completed"),
    PlanEntry(content="write a test", status="in_progress"),
    PlanEntry(content="fix it"),
)
_HOSTILE = (
    "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>",
    "![x](http://127.0.0.1:9/leak.png) [click](javascript:window.hacked=1) <svg onload=window.hacked=1>",
    "\u202eevil\u202c \x1b[31mred\x1b[0m \u200bhidden",
)


def _png(width: int = 96, height: int = 48) -> str:
    rows = b"".join(b"\0" + b"".join(bytes((40 + x, 90 + y, 200)) for x in range(width)) for y in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 2, 0, 0, 0))
    body = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(body).decode()


def _turn(n: int, when: datetime) -> tuple[Message, Message]:
    path = f"src/module_{n % 17}/handler.py"
    old = "def handle(request):\n    user = find(request)\n    return redirect(user.home)\n"
    new = old.replace("    return", "    if user is None:\n        raise Forbidden\n    return")
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
    user = Message(
        role="user",
        content=(TextBlock(text=f"Why is the login lost in step {n}? Please fix it and add a test."),),
        timestamp=when,
    )
    thought = ThoughtBlock(text="The cookie path looks wrong. I check the handler first.")
    said = Message(
        role="assistant",
        content=(thought, TextBlock(text=answer), call, ran),
        timestamp=when + timedelta(seconds=40),
    )
    return user, said


def _metrics(turns: int) -> Metrics:
    return Metrics(
        turns=turns,
        input_tokens=turns * 900,
        output_tokens=turns * 250,
        total_tokens=turns * 1150,
        cost=turns * 0.004,
        currency="USD",
    )


def talk(name: str, turns: int, begin: datetime, **fields: Any) -> SessionSnapshot:
    """A session about a login that is lost, of so many turns."""
    messages = [m for n in range(turns) for m in _turn(n, begin + timedelta(minutes=n))]
    number = zlib.crc32(name.encode())
    defaults: dict[str, Any] = {
        "title": _TITLES[number % 4],
        "agent": AgentInfo(name=_AGENTS[number % 4], version="1.4.2", command=(_AGENTS[number % 4], "acp")),
        "config": SessionConfig(cwd=f"/home/me/{_PROJECTS[number // 7 % 4]}", model="sonnet", mode="code"),
        "metrics": _metrics(turns),
        "plan": (
            PlanEntry(content="find the cause", status="completed"),
            PlanEntry(content="write a test", status="in_progress"),
            PlanEntry(content="fix it"),
        ),
        "tags": ("backend",) if number % 3 == 0 else (),
        "metadata": {"acp": {"capabilities": {"load": True}}},
        "agent_session_id": f"agent-{name}",
    }
    end = begin + timedelta(minutes=turns)
    return SessionSnapshot(
        session_id=name,
        created_at=begin,
        updated_at=end,
        messages=tuple(messages),
        provider_type="acp",
        **{**defaults, **fields},
    )


async def fill(place: Path, *, sessions: int = 40, long_messages: int = 5000) -> None:
    """Make the store."""
    now = datetime.now(UTC).replace(microsecond=0)
    async with FilesystemStore(place, background=False) as store:
        for n in range(sessions):
            begin = now - timedelta(days=2 + n // 3, hours=n % 7)
            whole = talk(f"session-{n:04}", 2 + n % 6, begin)
            for turns in range(1, 3 + n % 6):
                part = whole.evolve(messages=whole.messages[: turns * 2])
                await store.save(part, trigger="turn_end", base=turns - 1)
        unreadable = (talk(name, 2, now - timedelta(hours=8)) for name in ("damaged", "newer"))
        for each in (*_branches(now), _hostile(now), *unreadable):
            await store.save(each, trigger="turn_end", base=0)
        begin = now - timedelta(hours=6 + long_messages // 120)
        long = talk(LONG, long_messages // 2, begin, title=f"the long one: {long_messages:,} messages")
        step = max(2, long_messages // 100)
        for seq, count in enumerate(range(step, long_messages + 1, step)):
            tags = ("before-refactor",) if seq % 30 == 20 else ()
            part = long.evolve(messages=long.messages[:count], metrics=_metrics(count // 2))
            await store.save(part, base=seq, trigger="turn_end", tags=tags)
    _damage(place)
    _from_a_newer_release(place)


def fill_encrypted(place: Path, passphrase: str) -> None:
    """Make an encrypted store with a session that it opens and one, from another store, that it has no key for."""
    now, elsewhere = datetime.now(UTC), place.with_name(f"{place.name}-elsewhere")
    for where, name, words in ((place, "ours", passphrase), (elsewhere, "locked", "the words of another store")):
        with FilesystemStore(where, key=Passphrase(words), background=False).sync as store:
            store.save(talk(name, 2, now, title=name), trigger="turn_end", base=0)
    (locked,) = (elsewhere / "sessions").iterdir()
    shutil.copytree(locked, place / "sessions" / locked.name)


def _branches(now: datetime) -> tuple[SessionSnapshot, SessionSnapshot]:
    pictures = (ImageBlock(data=_png(), mime_type="image/png"), ImageBlock(data="AAAA", mime_type="image/png"))
    shown = Message(role="user", content=(TextBlock(text="This is how it looks:"), *pictures))
    title, tags = "a screenshot and a fork", ("review", "backend")
    tree = talk("pictures", 3, now - timedelta(days=1), title=title, tags=tags, pinned=True)
    fork = tree.evolve(
        session_id="the-fork",
        title=f"{title} (other way)",
        parent=Parent(session_id="pictures", seq=1, message_index=4),
        messages=(*tree.messages[:4], *_turn(99, now - timedelta(hours=20))),
    )
    return tree.evolve(messages=(*tree.messages, shown)), fork


def _hostile(now: datetime) -> SessionSnapshot:
    said = [Message(role="user", content=(TextBlock(text=words),)) for words in _HOSTILE]
    begun = talk("hostile", 0, now - timedelta(hours=9), title=_HOSTILE[0], tags=("<b>x</b>",))
    return begun.evolve(messages=tuple(said))


def _from_a_newer_release(place: Path) -> None:
    for file in (place / "sessions").glob("*newer*/*.snap.gz"):
        header, payload = open_frame(file.read_bytes(), session_id="newer", keys=None)
        file.write_bytes(encode_frame(header._replace(v=99, sum=""), payload, None))


def _damage(place: Path) -> None:
    for file in (place / "sessions").glob("*damaged*/*.snap.gz"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(bytes(data))
