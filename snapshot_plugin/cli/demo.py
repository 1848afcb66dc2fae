"""``asnap demo``: a session is killed in mid-sentence before your eyes, and comes back with every word."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import anyio
import click

from snapshot_plugin.cli.demo_session import ANSWER, QUESTION, SESSION_ID
from snapshot_plugin.manager.recovery import recover
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["command"]

_WORDS_BEFORE_THE_KILL = 24


@click.command("demo")
@click.option("--fast", is_flag=True, help="Do not type at reading speed.")
def command(*, fast: bool) -> None:
    r"""Kill a session in mid-sentence and bring it back, with every word.

    \b
    Examples:
      asnap demo             watch it, in about ten seconds
      asnap demo --fast      the same, at once
      asnap demo --fast && echo "nothing lost"
    """
    pause = 0.0 if fast else 0.1
    with tempfile.TemporaryDirectory(prefix="asnap-demo-") as folder:
        place = Path(folder) / "store"
        _say(f"\n  you    {QUESTION}\n  agent  ", end="")
        seen = _stream(place, pause, kill_after=_WORDS_BEFORE_THE_KILL)
        _say(click.style("  ✗ kill -9\n", fg="red", bold=True))
        kept = anyio.run(_recover, place)
        _say(f"  {len(seen.split())} words were on your screen, {len(kept.split())} came back from disk.\n")
        if not kept.startswith(seen):  # it may have written one word more than it could show
            raise click.ClickException(f"lost: {seen!r} was shown and {kept!r} was kept")
        _say("  agent  " + click.style(kept, dim=True), end="")
        rest = _stream(place, pause)
        whole = anyio.run(_load, place)
        if whole != ANSWER or kept + rest != ANSWER:
            raise click.ClickException("the answer did not come back whole")
    _say(click.style("\n\n  ✓ nothing lost\n", fg="green", bold=True))
    _say("  In your own program: README.md, “Sixty seconds”, and docs/how-to/orchestrator.md")


def _stream(place: Path, pause: float, *, kill_after: int | None = None) -> str:
    """Run the session in its own process, show what it says, SIGKILL it after some words; return what was seen."""
    child = [sys.executable, "-m", "snapshot_plugin.cli.demo_session", str(place), str(pause)]
    seen = ""
    with subprocess.Popen(child, stdout=subprocess.PIPE) as process:  # noqa: S603 — our own module
        assert process.stdout is not None  # noqa: S101 — it is a pipe
        while chunk := process.stdout.read1(16):  # type: ignore[attr-defined]
            seen += chunk.decode()
            _say(chunk.decode(), end="")
            if kill_after is not None and len(seen.split()) >= kill_after:
                process.send_signal(signal.SIGKILL)
                seen += process.stdout.read().decode()  # what was already on its way to the screen
                break
    return seen


async def _recover(place: Path) -> str:
    async with FilesystemStore(place) as store:
        await recover(store, now=datetime.now(UTC))
        return (await store.load(SESSION_ID)).messages[-1].text


async def _load(place: Path) -> str:
    async with FilesystemStore(place) as store:
        return (await store.load(SESSION_ID, strict=True)).messages[-1].text


def _say(text: str, *, end: str = "\n") -> None:
    click.echo(text + end, nl=False)
