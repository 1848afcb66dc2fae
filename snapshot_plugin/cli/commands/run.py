"""``asnap run``: run an ACP agent behind the recording proxy."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from snapshot_plugin.cli.layout import agent_command, process
from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.system.processes import AgentProcess

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from snapshot_plugin.acp.hosts.chain import ChainLink
    from snapshot_plugin.acp.hosts.proxy import Proxy
    from snapshot_plugin.cli.call import Call
    from snapshot_plugin.live.sessions import LiveSessions
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["run_command"]


@process(
    "run",
    examples=(
        ("asnap run -- opencode acp", "instead of opencode acp, where your editor starts it"),
        ("asnap run --store ./sessions --require history -- codex-acp", "refuse less than a native resume"),
        ("asnap run --session 01jd… -- another-agent", "continue a session in another agent"),
    ),
    exits=(4, 6, 7, 9),
    context_settings={"ignore_unknown_options": True},
)
@click.option("--store", metavar="PLACE", help="The store: a directory, or postgresql://….  [env: ASNAP_STORE]")
@click.option(
    "--require",
    type=click.Choice(["exact", "history", "context"]),
    help="The least faithful restore that is accepted; also refuse what cannot be recorded.  [default: context]",
)
@click.option(
    "--resume",
    type=click.Choice(["auto", "off", "required"]),
    default="auto",
    help="Restore stored sessions; leave that to the agent; or also refuse to begin new ones.",
)
@click.option(
    "--patience", type=float, default=60.0, show_default=True, help="Seconds the agent has to load a session."
)
@click.option("--session", metavar="REF", help="Continue this session when the client opens its first one.")
@click.option("--learn", is_flag=True, hidden=True)  # until 0.2.0; editors start us with what they were once told
@click.argument("agent", nargs=-1, type=click.UNPROCESSED, callback=agent_command)
def run_command(*, store: str | None, learn: bool, agent: tuple[str, ...], **wishes: Any) -> None:
    """Run an ACP agent behind a proxy that records its sessions and restores them.

    Nothing changes for the client or the agent. Everything the user has seen survives kill -9.
    Without an agent it is a component of a proxy chain: the conductor that started it connects it to the next
    component.
    """
    # A store elsewhere may be refused: nothing is started before that is known.
    opened = _opened(store) if _is_elsewhere(store) else None
    # The agent starts while we import what we need: together they take no longer than the slower one.
    process = AgentProcess(agent) if agent else _link()
    if sys.stdin.isatty():
        click.echo("asnap run speaks ACP here; let your editor start it. Ctrl-C ends it.", err=True)
    if learn:
        click.echo("asnap: --learn does nothing any more; remove it from your settings", err=True)
    ending = _Ending(process)
    try:
        status = _serve(process, agent, opened or _opened(store), ending, **wishes)
    except BaseException:
        process.end(patience=1.0)  # an agent must not outlive its client
        raise
    sys.stdout.flush()
    os._exit(status)  # the client's pump may block in a read forever


def _is_elsewhere(place: str | None) -> bool:
    """Whether the store may be a URL, decided without loading the settings."""
    from snapshot_plugin.manager.places import user_config_file

    place = place or os.environ.get("ASNAP_STORE")
    return "://" in place if place else user_config_file(os.environ).exists()


def _link() -> ChainLink:
    from snapshot_plugin.acp.hosts.chain import ChainLink

    return ChainLink()


class _Interrupted(BaseException):
    def __init__(self, number: int) -> None:
        self.number = number


class _Ending:
    """What SIGTERM, SIGINT and SIGHUP do: each is handled where it can do no harm.

    While the command starts, nothing is recorded yet: the agent and the command end at once. An exception in the
    middle of an import or of starting a thread could leave a lock taken, and the command would hang.
    While it serves, `_Interrupted` is raised in the thread that waits. While it ends, one more signal is ignored
    (editors hang up and then send SIGTERM, or send it twice); the next one, or a second Ctrl-C, exits immediately.
    The spool keeps what is not saved.
    """

    def __init__(self, process: AgentProcess | ChainLink) -> None:
        self._process = process
        self._phase = "starting"
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup: signals ignored at the start stay ignored
                signal.signal(number, self._received)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Raise `_Interrupted` in this block when a signal comes."""
        self._phase = "serving"
        yield
        self._phase = "ending"

    def _received(self, number: int, _frame: object) -> None:
        phase, self._phase = self._phase, "leaving"
        if phase == "serving":
            self._phase = "leaving" if number == signal.SIGINT else "ending"
            raise _Interrupted(number)
        if phase == "starting":
            self._process.signal(number)
            self._process.end(patience=1.0)
        if phase != "ending":
            os._exit(128 + number)


def _serve(
    process: AgentProcess | ChainLink,
    agent: tuple[str, ...],
    opened: tuple[Call, SnapshotStore],
    ending: _Ending,
    *,
    require: str | None,
    resume: str,
    patience: float,
    session: str | None,
) -> int:
    from anyio.from_thread import start_blocking_portal

    from snapshot_plugin.acp.hosts.proxy import Proxy
    from snapshot_plugin.acp.methods import SessionMethods
    from snapshot_plugin.acp.reducer import AcpReducer
    from snapshot_plugin.inert import say
    from snapshot_plugin.live.sessions import LiveSessions

    call, kept = opened
    with start_blocking_portal() as portal:
        for line in portal.call(_recovered, kept):
            say(line)
        sessions = LiveSessions(kept, AcpReducer)
        methods = SessionMethods(
            adopt=portal.call(_whole_id, kept, session) if session else None,
            only_stored=resume == "required",
            restores=resume != "off",
            on_deleted=lambda trashed: portal.call(call.work.record_deletion, kept, [trashed]),
        )
        proxy = Proxy(
            agent,
            sessions,
            methods,
            client_in=0,
            client_out=1,
            require=require or "context",
            must_record=require is not None,
            on_unrecorded=functools.partial(_note_unrecorded, call, agent),
            timeout=patience,
            line_bytes=call.config.max_message_bytes,
        )
        try:
            with _answering(sessions, portal):
                signalled = _wait(proxy, process, ending)
                return proxy.end() or signalled
        finally:
            portal.call(kept.aclose)


def _wait(proxy: Proxy, process: AgentProcess | ChainLink, ending: _Ending) -> int:
    """Serve until the client hangs up, or a signal comes: the agent gets it, too."""
    try:
        with ending.serving():
            proxy.run(process)
    except _Interrupted as interrupted:
        proxy.pass_on(interrupted.number)
        return 128 + interrupted.number
    return 0


def _note_unrecorded(call: Call, agent: tuple[str, ...], why: str) -> None:
    """Remember for ``asnap doctor`` that a connection to *agent* was not recorded."""
    from snapshot_plugin.cli.remembered import UNRECORDED, recall, remember
    from snapshot_plugin.model.withheld import command_without_secrets

    command = " ".join(command_without_secrets(agent)) or "a component of a proxy chain"
    remember(call, UNRECORDED, {**recall(call, UNRECORDED), command: {"why": why, "at": call.now.isoformat()}})


async def _recovered(store: SnapshotStore) -> list[str]:
    """Recover what killed processes left behind, and print a line for each session."""
    from datetime import UTC, datetime

    from snapshot_plugin.live.recovery import recover
    from snapshot_plugin.operations.text import several

    return [
        f"session {each.session_id} ended unexpectedly; {several(each.records, 'update')} recovered"
        + (f" ({each.problem})" if each.problem else "")
        for each in await recover(store, now=datetime.now(UTC))
        if each.records or each.problem
    ]


async def _whole_id(store: SnapshotStore, ref: str) -> str:
    from snapshot_plugin.operations.references import find, going_on

    return going_on(await find(store, ref)).session_id


def _opened(place: str | None) -> tuple[Call, SnapshotStore]:
    from snapshot_plugin.cli.call import Call
    from snapshot_plugin.live.place import required_place

    call = Call.of_process(place)
    store = call.opened(create=True, background=True)
    required_place(store)
    return call, store


@contextmanager
def _answering(sessions: LiveSessions, portal: BlockingPortal) -> Iterator[None]:
    """Answer other processes' requests about our sessions: save before a deploy, rename."""
    from snapshot_plugin.inert import say
    from snapshot_plugin.manager.control import serve_control
    from snapshot_plugin.manager.predeploy import answer_request
    from snapshot_plugin.model.ids import new_id

    serve = functools.partial(serve_control, functools.partial(answer_request, sessions.open.get), name=new_id())
    try:
        serving, path = portal.start_task(serve)
    except SnapshotError as error:  # without a socket, sessions are still recorded
        say(error.message)
        yield
        return
    sessions.control = str(path)
    try:
        yield
    finally:
        serving.cancel()
