"""``asnap resume``: pick a session, see what will be restored, continue it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, NamedTuple, NoReturn

import click

from snapshot_plugin.cli.call import Call, our_module
from snapshot_plugin.cli.command import Printed, yes_option
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.commands.find import context_line
from snapshot_plugin.cli.layout import directory
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.recovering import recover_first
from snapshot_plugin.cli.remembered import tell_unexpected
from snapshot_plugin.errors import FidelityNotMet, InvalidInput, SessionLocked, SnapshotNotFound
from snapshot_plugin.inert import shell_line
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.document import Document
from snapshot_plugin.operations.references import going_on, resolve
from snapshot_plugin.operations.sessions import Selection, SessionRow, here, rows_of, select
from snapshot_plugin.operations.showing import About, about
from snapshot_plugin.operations.text import count, long_ago, plain, several, span

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.operations.command_trust import CommandTrust, Start
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Resume", "resume_command"]

_CACHED = timedelta(hours=1)
"""The longest time for which providers cache a prompt."""
_GRADES = {
    "native-load": "the agent loads it itself; what it shows is compared with the record",
    "native-resume": "the agent resumes it itself",
    "context": "the agent starts a new session and is told the conversation",
}


class Resume(Document):
    """A session that can be resumed: what is restored, and the command for it."""

    kind: ClassVar[str] = "resume"
    session: SessionRow
    about: About
    cold: bool
    """Whether the provider's cache has expired: the first turn then reads the whole context again."""
    expected_grade: str | None
    """native-load, native-resume or context; null if that is known only once the agent runs."""
    note_characters: int | None = None
    """The length of the note that tells the agent the conversation; null unless the expected grade is context."""
    restores: tuple[str, ...]
    """What will be restored."""
    cwd: str | None
    command: tuple[str, ...]
    confirmed: bool
    """False if the session came with an import, and this command in this directory was not confirmed: --exec asks
    before it runs."""
    as_of: datetime

    @property
    def shell_line(self) -> str:
        """The command, ready to paste."""
        line = shell_line(self.command)
        return f"cd {shell_line([self.cwd])} && {line}" if self.cwd else line


def show_resume(answer: Resume, out: Output) -> None:
    """Print a session that can be resumed: what is restored, and the command for it."""
    for line in story(answer):
        out.note(line)
    out.line(answer.shell_line)
    if out.is_terminal:
        out.note("\nIt speaks ACP on stdin and stdout: start it from your editor. In Zed, settings.json:")
        out.note(_zed(answer))


def story(answer: Resume) -> Iterator[str]:
    """Describe what will be restored."""
    row, known = answer.session, answer.about
    yield f"{row.name} ({plain(row.session_id)})"
    agent = " ".join(part for part in (known.agent, known.agent_version) if part) or "unknown agent"
    age = f"last changed {long_ago(row.changed_at, answer.as_of)}"
    yield f"  agent     {plain(agent)}, {age}, {row.length}"
    cold = ", cold: the first turn reads it again" if answer.cold else ""
    yield f"  context   {context_line(known)}{cold}"
    yield f"  restores  {plain(', '.join(answer.restores))}"
    how = _GRADES.get(answer.expected_grade or "", "known once the agent runs")
    told = f" (a note of {count(answer.note_characters)} characters)" if answer.note_characters else ""
    yield f"  grade     {answer.expected_grade or 'not known yet'}: {how}{told}"
    yield from (f"  repair    {plain(notice)}" for notice in known.notices)
    yield from (f"  damaged   {plain(damage)}" for damage in known.skipped)
    if not answer.confirmed:
        yield "  imported  its command and directory are not confirmed: read them before you run it"
    if row.ended_unexpectedly:
        yield "  ended     unexpectedly; what was cut off is recovered first"
    if answer.cwd and not os.path.isdir(answer.cwd):  # noqa: PTH112 — text
        yield f"  missing   {plain(answer.cwd)} does not exist; give another directory with --cwd"


def _zed(answer: Resume) -> str:
    import json

    name = json.dumps(plain(answer.about.agent or "agent"))
    server = json.dumps({"type": "custom", "command": answer.command[0], "args": answer.command[1:]})
    return f'  "agent_servers": {{\n    {name}: {server}\n  }}'


def show_command(answer: Resume, out: Output) -> None:
    """Print the command alone, unless on a terminal."""
    if out.is_terminal:
        show_resume(answer, out)
        return
    if not answer.confirmed:
        name = plain(answer.session.session_id)
        out.warn(f"asnap: not confirmed: session {name} came with an import; read the command before you run it")
    out.line(answer.shell_line)


@declare(
    "resume",
    answer=Resume,
    show=show_resume,
    examples=(
        ("asnap resume", "pick one, and continue in this terminal"),
        ("asnap resume 01jd --exec", "run the agent with that session: for an editor's settings"),
        ("asnap resume latest --with 'opencode acp'", "continue in another agent"),
        ("asnap resume tag:pre-deploy --require history --print", "the command alone, or exit code 9"),
    ),
    exits=(4, 5, 6, 7, 9, 10, 130),
)
@click.argument("ref", metavar="[REF]", required=False)
@click.option(
    "--exec", "execute", is_flag=True, help="Become asnap run with this session: speak ACP on stdin and stdout."
)
@click.option(
    "--print", "only_print", is_flag=True, help="Print the command for an editor instead of continuing here."
)
@click.option("--with", "agent", metavar="COMMAND", help="The agent to continue in.  [default: its last agent]")
@click.option("--cwd", metavar="DIR", help="The directory to continue in.  [default: where it was]")
@yes_option
@click.option(
    "--require", type=click.Choice(["exact", "history", "context"]), help="The least faithful restore to accept."
)
async def resume_command(
    call: Call,
    *,
    ref: str | None,
    execute: bool,
    only_print: bool,
    agent: str | None,
    cwd: str | None,
    require: str | None,
) -> Printed | None:
    """Resume a session: see what will be restored, and how, then start its agent.

    On a terminal the conversation continues here, as in asnap chat; otherwise, and with --print, the command for an
    editor is printed. Without REF: a picker with search on a terminal, otherwise the newest intact session of this
    project.
    """
    async with call.live() as store:
        await recover_first(call, store)
        row = await _wanted(call, store, ref, may_pick=not execute)
        _refuse_live(row, call.now, call.config.storage_path)
        stored = await store.read(row.session_id)
        known, place = about(stored), directory(cwd) if cwd is not None else row.cwd
        command_ = _agent_command(known, agent, row, call.config.storage_path)
        consent = await _consent(call, store, stored.snapshot, command_, place)
    if agent is not None and (cwd is not None or _is_here(consent.start.directory)):
        consent = consent._replace(is_given=True)
    expected = _expected(known, command_, require, row)
    resume = Resume(
        session=row,
        about=known,
        cold=call.now - row.changed_at > _CACHED,
        expected_grade=expected,
        note_characters=_note_characters(stored.snapshot) if expected == "context" else None,
        restores=tuple(_restores(row, known)),
        cwd=place,
        command=_run_line(call, row, command_, require),
        confirmed=consent.is_given,
        as_of=call.now,
    )
    if execute:
        _agreed(call, resume, consent)
        _become(call, resume, consent.start.directory)
    if only_print or not (_can_pick(call) and sys.stdout.isatty()):
        return Printed(resume, show_command if only_print else show_resume)
    await _go_on(call, resume, consent, require)
    return None


def _can_pick(call: Call) -> bool:
    """Whether a person is at a terminal that can show a picker. The answer may go elsewhere."""
    return call.may_ask and call.out.can_draw and call.out.is_text


async def _go_on(call: Call, resume: Resume, consent: _Consent, require: str | None) -> None:
    """Show what will be restored, and continue the session in this terminal."""
    from snapshot_plugin.cli.commands.chat import chat, without_echo

    _agreed(call, resume, consent)
    for line in story(resume):
        call.out.note(line)
    session_id = resume.session.session_id
    async with call.live() as store:
        with without_echo(call):
            await chat(
                call,
                store,
                consent.start.command,
                session_id=session_id,
                cwd=resume.cwd or "/",
                start_in=consent.start.directory,
                require=require,
            )


# Which session -------------------------------------------------------------------------------------------


async def _wanted(call: Call, store: SnapshotStore, ref: str | None, *, may_pick: bool) -> SessionRow:
    metas = await store.list()
    rows = await rows_of(store, metas)
    if ref is not None:
        target = going_on(resolve(ref, metas))
        return next(row for row in rows if row.session_id == target.session_id)
    tell_unexpected(call, rows)
    if may_pick and _can_pick(call) and any(not row.is_memory for row in rows):
        from snapshot_plugin.cli.picker import pick

        picked = await pick(call, store, rows)
        if picked is None:
            raise click.Abort
        return picked
    return _newest_here(rows)


def _newest_here(rows: Sequence[SessionRow]) -> SessionRow:
    place = here()
    for row in select(rows, Selection(below=place)).shown:
        if row.state == "ok" and not row.live:
            return row
    elsewhere = sum(not row.is_memory for row in rows)
    raise SnapshotNotFound(
        f"no session of {place} can be resumed",
        hint=f"name one: the store has {elsewhere}" if elsewhere else "the store is empty",
    )


def _refuse_live(row: SessionRow, now: datetime, place: str) -> None:
    if row.live:
        who = f"process {row.live.pid} on {row.live.host} has had it for {span(row.live.since, now)}"
        command = " ".join(row.live.command)
        crashed = "; if it crashed, try again when its lease has expired, in seconds" if "://" in place else ""
        raise SessionLocked(
            f"session {row.session_id} is live: {who}" + (f" ({command})" if command else ""),
            session_id=row.session_id,
            hint=f"end that process, or continue in a fork of its newest snapshot{crashed}",
            run=f"asnap fork {shlex.quote(as_reference(row.session_id))}",
        )


# How it is resumed ------------------------------------------------------------------------------------------


def _agent_command(known: About, given: str | None, row: SessionRow, place: str) -> tuple[str, ...]:
    from snapshot_plugin.frameworks.continuing import how_to_continue
    from snapshot_plugin.model.withheld import withheld_in

    try:
        words = tuple(shlex.split(given)) if given is not None else known.agent_command
    except ValueError as wrong:
        raise InvalidInput(f"--with {given!r} is not a command: {wrong}") from wrong
    if not words and (line := how_to_continue(row.provider_type, row.session_id, place)):
        raise InvalidInput(
            f"session {row.session_id} belongs to {row.provider_type}: it is continued in code, not by a command",
            session_id=row.session_id, hint=f"continue it with: {line}",
        )  # fmt: skip
    if not words:
        raise InvalidInput(
            f"the agent command of session {row.session_id} was not recorded",
            session_id=row.session_id,
            hint="give it with --with, for example:",
            run=f"asnap resume {shlex.quote(as_reference(row.session_id))} --with 'opencode acp'",
        )
    if given is None and (missing := withheld_in(words)):
        raise InvalidInput(
            f"the command of session {row.session_id} is stored without what may be secret: {', '.join(missing)}",
            session_id=row.session_id,
            hint="give the whole command with --with:",
            run=f"asnap resume {shlex.quote(as_reference(row.session_id))} --with {shlex.quote(shlex.join(words))}",
        )
    return words


def _expected(known: About, agent: Sequence[str], require: str | None, row: SessionRow) -> str | None:
    from snapshot_plugin.acp.restore import meets
    from snapshot_plugin.model.withheld import command_without_secrets

    expected = known.expected_grade if command_without_secrets(agent) == known.agent_command else "context"
    if require and expected and not meets(expected, require):
        raise FidelityNotMet(
            f"session {row.session_id} can be restored as {expected}, but {require} is required",
            session_id=row.session_id,
            hint="allow a lower grade with --require context",
        )
    return expected


def _note_characters(snapshot: SessionSnapshot) -> int:
    """The length of the note, counting a turn in progress as ended, as a resume does."""
    from snapshot_plugin.acp.notes import note_about
    from snapshot_plugin.acp.reducer import AcpReducer

    recording = AcpReducer(snapshot)
    if recording.running:
        recording.apply({"interrupted": "the client hung up"})
    return len(note_about(recording.snapshot(snapshot.updated_at)) or "")


def _restores(row: SessionRow, known: About) -> Iterator[str]:
    yield several(row.messages, "message")
    if known.mode:
        yield f"mode {known.mode}"
    if known.model:
        yield f"model {known.model}"
    if known.plan_total:
        yield f"plan ({known.plan_done} of {known.plan_total} done)"
    if known.mcp_servers:
        yield f"servers {', '.join(known.mcp_servers)} (from your editor)"


def _run_line(call: Call, row: SessionRow, agent: Sequence[str], require: str | None) -> tuple[str, ...]:
    from snapshot_plugin.manager.places import default_storage_path
    from snapshot_plugin.store import is_url

    place = call.config.storage_path
    where = place if is_url(place) else os.path.abspath(place)  # noqa: PTH100 — as above
    store = () if place == str(default_storage_path(call.environ)) else ("--store", where)
    demand = ("--require", require) if require else ()
    return ("asnap", "run", *store, "--session", as_reference(row.session_id), *demand, "--", *agent)


# Consent ----------------------------------------------------------------------------------------------------


class _Consent(NamedTuple):
    """What the user would have to agree to, and whether that is known already."""

    trust: CommandTrust
    start: Start
    is_given: bool


async def _consent(
    call: Call, store: SnapshotStore, snapshot: SessionSnapshot, agent: Sequence[str], cwd: str | None
) -> _Consent:
    from snapshot_plugin.operations.command_trust import command_trust, start_of

    trust, start = command_trust(call.work, store), await start_of(store, snapshot, agent, cwd)
    return _Consent(trust, start, trust.is_trusted(start))


def _is_here(place: str) -> bool:
    return os.path.realpath(place) == os.path.realpath(os.getcwd())  # noqa: PTH109 — text


def _agreed(call: Call, resume: Resume, consent: _Consent) -> None:
    """Before something of an imported session first runs, show it and ask; then remember the answer."""
    start, session_id = consent.start, resume.session.session_id
    if not consent.is_given:
        line = f"cd {shell_line([start.directory])} && {shell_line(start.command)}"
        call.out.warn(f"asnap: session {plain(session_id)} came with an import; it runs:")
        call.out.warn(f"asnap:   {line}")
        try:
            call.confirm("Run it?")
        except InvalidInput:
            raise InvalidInput(
                f"not run: session {session_id} came with an import, and this is not confirmed: {line}",
                session_id=session_id,
                hint="confirm it with --yes, or give your own command and directory with --with and --cwd",
                run=f"asnap resume {shlex.quote(as_reference(session_id))} --exec --yes",
            ) from None
    consent.trust.confirm(start)


def _become(call: Call, resume: Resume, place: str) -> NoReturn:
    """Replace this process with the agent's proxy; the client talks to it from now on."""
    for line in story(resume):
        call.out.note(f"asnap: {line}")
    call.out.warn(f"asnap: {resume.shell_line}")
    os.chdir(place)
    sys.stdout.flush()
    sys.stderr.flush()
    ours = our_module("snapshot_plugin", *resume.command[1:])
    os.execv(ours[0], ours)  # noqa: S606 — that is the point
