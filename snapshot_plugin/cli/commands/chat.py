"""``asnap chat``: talk to any ACP agent in the terminal, recorded."""

from __future__ import annotations

import gc
import select
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.layout import agent_command, directory
from snapshot_plugin.errors import AgentUnavailable, InvalidInput
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.system.terminal import silent

if TYPE_CHECKING:
    from snapshot_plugin.cli.chat.keys import TurnKeys
    from snapshot_plugin.operations.sessions import SessionRow
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["chat", "chat_command", "without_echo"]


@declare(
    "chat",
    examples=(
        ("asnap chat -- opencode acp", "talk to OpenCode; every word is recorded"),
        ("asnap chat --cwd ~/shop -- gemini --acp", "in another directory"),
        ("asnap resume", "pick a session, and continue it here"),
    ),
    exits=(6, 7, 9, 10, 130),
    context_settings={"ignore_unknown_options": True},
)
@click.option("--cwd", metavar="DIR", help="Where the agent works.  [default: here]")
@click.argument("agent", nargs=-1, required=True, type=click.UNPROCESSED, callback=agent_command)
async def chat_command(call: Call, *, cwd: str | None, agent: tuple[str, ...]) -> None:
    """Talk to any ACP agent in this terminal, recorded as asnap run records.

    An interrupted session is offered first. /help lists the commands: switch, fork, rename and export sessions.
    """
    place = directory(cwd or ".")
    _check_terminal(call)
    async with call.live(create=True) as store:
        with without_echo(call):
            from snapshot_plugin.cli.chat.keys import TurnKeys

            keys, interrupted = TurnKeys(), await _interrupted(call, store, agent)
            if interrupted is not None and await _wanted(call, interrupted, keys):
                session_id, place = interrupted.session_id, interrupted.cwd or place
            else:
                session_id = None
            await chat(call, store, agent, session_id=session_id, cwd=place, keys=keys)


def _check_terminal(call: Call) -> None:
    if not (call.may_ask and sys.stdout.isatty() and call.out.is_text):
        raise InvalidInput("asnap chat needs a terminal", hint="editors and scripts speak ACP with asnap run")


def _check_agent(call: Call, program: str) -> None:
    """Refuse an agent that is not there, before a recorder is started that could only say the same."""
    from snapshot_plugin.cli.commands.operate import installed_agents

    if shutil.which(program, path=call.environ.get("PATH")):
        return
    others = [f"asnap chat -- {line}" for line in installed_agents(call)]
    raise AgentUnavailable(
        f"there is no program {program!r}: install the agent, or correct the command",
        hint="",
        run=others[0] if others else "asnap demo",
    )


@contextmanager
def without_echo(call: Call) -> Iterator[None]:
    """Leave what is typed for the first prompt, which shows it. Ctrl-C still interrupts."""
    terminal = sys.stdin.fileno()
    with silent(terminal, by_key=True):
        if call.out.can_draw and select.select([terminal], [], [], 0)[0]:
            sys.stderr.write("\r\x1b[K")  # erase what was shown so far
        yield


async def chat(
    call: Call,
    store: SnapshotStore,
    agent: Sequence[str],
    *,
    session_id: str | None,
    cwd: str,
    start_in: str | None = None,
    keys: TurnKeys | None = None,
    require: str | None = None,
) -> None:
    """Talk to *agent* in a new session, or continue a stored one, until the user leaves.

    Call it in `without_echo`. The agent starts in the directory *start_in*, by default the current one, and works
    in *cwd*. *keys* has what was typed already.
    """
    from snapshot_plugin.cli.call import our_module
    from snapshot_plugin.cli.chat.conversation import Conversation
    from snapshot_plugin.cli.chat.keys import TurnKeys
    from snapshot_plugin.cli.chat.unfinished import remembered

    _check_agent(call, agent[0])
    gc.enable()  # it may run for days (see __main__)
    demand = ("--require", require) if require else ()
    store_words = ("--store", str(getattr(store, "path", call.config.storage_path)))
    recorder = our_module("snapshot_plugin", "run", *store_words, *demand, "--", *agent)
    talk = Conversation(call, store, recorder, keys or TurnKeys(), start_in)
    call.out.note("starting the agent …", dim=True)  # some take seconds
    async with talk.connection:
        await talk.begin()
        with remembered(call) as talk.entered:
            if session_id is None:
                await talk.new(cwd)
            else:
                await talk.load(session_id, cwd)
            await talk.run()
    named = shlex.quote(as_reference(talk.session_id))
    call.out.note(f"saved; to continue: {call.out.run(f'asnap resume {named}')}")


# What was interrupted ----------------------------------------------------------------------------------------


async def _interrupted(call: Call, store: SnapshotStore, agent: Sequence[str]) -> SessionRow | None:
    """Return the newest session with this agent that a killed chat, recorder or agent left behind."""
    from snapshot_plugin.cli.chat.unfinished import unfinished
    from snapshot_plugin.cli.recovering import left_behind, recover_first
    from snapshot_plugin.model.withheld import command_without_secrets
    from snapshot_plugin.operations.sessions import session_rows

    died = set(await left_behind(store)) | unfinished(call)
    await recover_first(call, store)
    for row in await session_rows(store):
        if row.session_id in died and row.state == "ok" and not row.live:
            snapshot = await store.load(row.session_id)
            used = snapshot.agent.command if snapshot.agent else ()
            if not used or used == command_without_secrets(agent):
                return row
    return None


async def _wanted(call: Call, row: SessionRow, keys: TurnKeys) -> bool:
    from snapshot_plugin.cli.chat.question import Option
    from snapshot_plugin.operations.text import long_ago

    when = long_ago(row.changed_at, call.now)
    keys.take_typed()  # first: it does not answer a question that nobody has seen
    call.out.note(f"“{row.name}” was interrupted {when}, after {row.length}. Resume it?", fg="yellow")
    options = Option("y", "resume it", "y"), Option("n", "begin a new session", "n")
    with keys.listening(lambda: None):
        chosen = await keys.ask(options, otherwise="leave", default=0, colour=call.out.notes_have_colour)
    if chosen is None:
        raise KeyboardInterrupt
    return chosen == "y"
