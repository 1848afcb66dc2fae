"""``asnap demo``: an agent is killed in mid-sentence before your eyes; the session comes back with every word."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import click

from snapshot_plugin.acp.endpoint import Endpoint
from snapshot_plugin.acp.messages import Message, as_object, text_in
from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.chat.streaming import WordWrap
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.commands.demo_agent import ANSWER, GO_ON, QUESTION
from snapshot_plugin.cli.ourselves import our_module
from snapshot_plugin.cli.output import WIDE

__all__ = ["command"]

_WORDS_BEFORE_THE_KILL = 24
_PAUSE = 0.04
"""Seconds between words: the demo takes about four in all."""
_WIDEST = 26
_CHUNK = 1 << 16
_YOU, _AGENT = "  you    ", "  agent  "
_EDITOR = """
  With a real agent:

    asnap chat -- opencode acp            (or any other ACP agent)

  In an editor, put asnap run -- in front of its command. In Zed, settings.json:

    "agent_servers": {
      "opencode": {
        "type": "custom", "command": "asnap",
        "args": ["run", "--", "opencode", "acp"]
      }
    }
"""


class _Client:
    """An ACP client of the proxy, which runs the demo agent. Both are one process group, to be killed at once."""

    def __init__(self, place: str, environ: Mapping[str, str], pause: float) -> None:
        agent = our_module("snapshot_plugin.cli.commands.demo_agent", str(pause))
        proxy = our_module("snapshot_plugin", "run", "--store", place, "--", *agent)
        self._process = subprocess.Popen(  # noqa: S603 — our own modules
            proxy,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
        )
        self._endpoint = Endpoint()

    def ask(self, method: str, params: dict[str, Any], on_text: Callable[[str, str], bool] | None = None) -> Any:
        """Send a request, show the text that streams by, and return the result; None if *on_text* said to stop."""
        assert self._process.stdin is not None  # noqa: S101 — both are pipes
        assert self._process.stdout is not None  # noqa: S101 — both are pipes
        answers: list[Message] = []
        self._process.stdin.write(self._endpoint.request(method, params, answers.append))
        self._process.stdin.flush()
        while data := os.read(self._process.stdout.fileno(), _CHUNK):
            for _, message in self._endpoint.feed(data):
                update = as_object(as_object((message or {}).get("params")).get("update"))
                text = text_in(update)
                if text and on_text and not on_text(str(update["sessionUpdate"]), text):
                    return None
            if answers:
                return answers[0].get("result")
        raise click.ClickException("the proxy ended before it answered")

    def kill(self) -> None:
        """SIGKILL the proxy and the agent, without any cleanup."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        agents = children.read_text().split() if children.exists() else []
        self._process.kill()
        for pid in agents:
            os.kill(int(pid), signal.SIGKILL)

    def __enter__(self) -> Self:
        self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        if self._process.stdout:
            self._process.stdout.close()
        self._process.wait()


@declare(
    "demo",
    examples=(
        ("asnap demo", "watch it, in about four seconds"),
        ("asnap demo --fast", "the same, without pauses"),
        ("asnap demo --fast && echo ok", "in a script: fails if a word was lost"),
    ),
    exits=(7,),
)
@click.option("--fast", is_flag=True, help="Do not type at reading speed.")
def command(call: Call, *, fast: bool) -> None:
    """Kill an agent in mid-sentence and resume the session with every word.

    The session stays in your store, with the tag demo: look at it with the other commands.
    """
    click.get_current_context().color = call.out.has_colour
    place, pause = anyio.run(_open, call), 0.001 if fast else _PAUSE
    start = functools.partial(_Client, place, call.child_environ, pause)
    session_id, seen = _until_killed(start)
    _bring_back(start, session_id, seen)
    anyio.run(_tag, call, session_id)
    click.secho("\n\n  ✓ nothing lost, and the model knows what you saw\n", fg="green", bold=True)
    click.echo("  The session is in your store:\n")
    for line, what in (
        ("list", "find it"),
        (f"show {session_id}", "read it"),
        (f"resume {session_id}", "go on with it"),
    ):
        click.echo(f"    {call.out.run(f'asnap {line}'):<{_WIDEST}}  {what}")
    click.echo(_EDITOR)


async def _open(call: Call) -> str:
    """Create the store if there is none, and return its place; it may be encrypted, or not usable at all."""
    async with call.live(create=True) as store:
        return str(getattr(store, "path", call.config.storage_path))


async def _tag(call: Call, session_id: str) -> None:
    from snapshot_plugin.manager.labels import label

    async with call.live() as store:
        await label(store, session_id, lambda session: {"tags": [*session.tags, "demo"]})


class _Screen:
    """Shows what the agent says, broken between words on a terminal."""

    def __init__(self) -> None:
        self._wrap = WordWrap(indent=len(_AGENT))

    def show(self, text: str) -> None:
        wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE
        click.echo(self._wrap.feed(text, wide), nl=False)


def _until_killed(start: Callable[[], _Client]) -> tuple[str, str]:
    seen: list[str] = []
    screen = _Screen()

    def show(_kind: str, text: str) -> bool:
        seen.append(text)
        screen.show(text)
        return len(seen) < _WORDS_BEFORE_THE_KILL

    with start() as client:
        session_id = client.ask("session/new", {"cwd": os.getcwd(), "mcpServers": []})["sessionId"]  # noqa: PTH109 — text
        screen.show(f"\n{_YOU}{QUESTION}\n{_AGENT}")
        client.ask("session/prompt", _prompt(session_id, QUESTION), show)
        client.kill()
    screen.show(click.style(" ✗ kill -9, agent and all\n\n", fg="red", bold=True))
    return session_id, "".join(seen)


def _bring_back(start: Callable[[], _Client], session_id: str, seen: str) -> None:
    kept: list[str] = []
    said: list[str] = []
    screen = _Screen()

    def keep(kind: str, text: str) -> bool:
        if kind == "agent_message_chunk":
            kept.append(text)
        return True

    def show(_kind: str, text: str) -> bool:
        said.append(text)
        screen.show(text)
        return True

    with start() as client:
        client.ask("session/load", {"sessionId": session_id, "cwd": os.getcwd(), "mcpServers": []}, keep)  # noqa: PTH109 — text
        back = "".join(kept)
        click.echo(f"  {len(seen.split())} words were on your screen; {len(back.split())} came back.\n")
        if not back.startswith(seen):  # it may have recorded one word more than it showed
            raise click.ClickException(f"lost: {seen!r} was shown and {back!r} was kept")
        screen.show(f"{_AGENT}{click.style(back, dim=True)}\n{_YOU}{GO_ON}\n{_AGENT}")
        client.ask("session/prompt", _prompt(session_id, GO_ON), show)
    if (back + "".join(said)).split() != ANSWER.split():
        raise click.ClickException("the agent did not go on from where it was cut off")


def _prompt(session_id: str, text: str) -> dict[str, Any]:
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}
