"""The chat loop: prompts and turns with one agent, and the slash commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.patch_stdout import patch_stdout

from snapshot_plugin.cli.chat.asking import prompt_session
from snapshot_plugin.cli.chat.connection import Connection, Refused
from snapshot_plugin.cli.chat.display import Display
from snapshot_plugin.cli.chat.keys import TurnKeys
from snapshot_plugin.cli.chat.question import Option
from snapshot_plugin.cli.commands.find import lines_of
from snapshot_plugin.errors import AgentUnavailable, InvalidInput, SnapshotError
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.text import plain, several

if TYPE_CHECKING:
    from snapshot_plugin.cli.call import Call
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Conversation"]

Json = dict[str, Any]
_SHOWN_BEFORE = 6
"""How many messages of a resumed session are shown; earlier ones are only counted."""
_SHOWN_LINES, _SHOWN_CHARACTERS = 40, 4000
"""How many lines are shown of each, and how much of a line; half from the beginning, half from the end."""
_SAVE, _PROMPTLY = 10.0, 1.0
_DIGITS = 9
"""How many options of a question have a digit; the others are picked with the arrow keys."""
_CAPABILITIES = {"_meta": {"asnap": {"restored": True}}}
"""Asks the recorder to report when it has restored the session in a restarted agent."""
_MEMORY = {
    "native-load": "from the agent's own memory",
    "native-resume": "from the agent's own memory",
    "context": "told to the agent with your next prompt",
}
_HELP = (
    "/sessions        pick another session and continue it",
    "/fork [TITLE]    branch this session, and continue in the branch",
    "/rename NAME     give this session a name",
    "/export FILE     write it to FILE: .md, .html, .json, or a bundle",
    "/open N          show the input and output of tool call N",
    "/quit            end (Ctrl-D); everything is saved",
)
_KEYS = (
    "Enter sends, Alt-Enter begins a new line, Ctrl-C cancels a turn.",
    "Other commands go to the agent.",
)


class Conversation:
    """One person, one agent, one session at a time."""

    def __init__(
        self,
        call: Call,
        store: SnapshotStore,
        command: Sequence[str],
        keys: TurnKeys,
        start_in: str | None = None,
    ) -> None:
        self._call, self._store = call, store
        self._display = Display(colour=call.out.notes_have_colour)
        self.connection = Connection(
            command,
            start_in=start_in,
            environ=call.child_environ,
            notified=self._notified,
            asked=self._asked,
            said=self._display.aside,
        )
        self.session_id = self._cwd = ""
        self.entered: Callable[[str], None] = lambda _session_id: None
        """Called with the id of each session that the chat enters."""
        self._agent = "agent"
        self._restored: dict[str, str] = {}
        """How each session of this chat was restored; empty for sessions that began in it."""
        self._untold: dict[str, Mapping[str, Any]] = {}
        """Reports on sessions that were restored while the user was in another one."""
        self.keys = keys
        self._cancelling = self._abandoning = anyio.Event()
        self._is_leaving = False
        self._prompt: PromptSession[str] = prompt_session(self._status, colour=call.out.notes_have_colour)

    def _status(self) -> str:
        return self._display.status(self._agent, self._restored.get(self.session_id, ""))

    # Sessions -----------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Initialize the connection to the agent.

        Raises:
            AgentUnavailable: it does not answer as an ACP agent does.
        """
        told = {"name": "asnap-chat", "title": "asnap chat", "version": "1"}
        try:
            offered = await self.connection.request(
                "initialize", {"protocolVersion": 1, "clientCapabilities": _CAPABILITIES, "clientInfo": told}
            )
        except Refused as error:
            if self.connection.ended.is_set():
                raise AgentUnavailable("the chat cannot begin", hint="the recorder says why, above") from error
            if error.is_interruption:
                hint = "run its command without asnap to see why"
                raise AgentUnavailable("the agent ended instead of answering", hint=hint) from error
            raise AgentUnavailable(f"the agent cannot be used: {plain(str(error))}") from error
        info = offered.get("agentInfo")
        if isinstance(info, Mapping):
            self._agent = plain(str(info.get("title") or info.get("name") or "agent"))

    async def new(self, cwd: str) -> None:
        """Begin a session."""
        try:
            result = await self.connection.request("session/new", {"cwd": cwd, "mcpServers": []})
        except Refused as error:
            raise _unusable(error) from error
        self._enter(str(result.get("sessionId", "")), cwd, result)
        self._display.line(f"{self._agent} in {plain(cwd)} · /help for commands, Ctrl-D to end", dim=True)

    async def load(self, session_id: str, cwd: str) -> None:
        """Resume a stored session: show its last messages, and let the agent load it."""
        params = {"sessionId": session_id, "cwd": cwd, "mcpServers": []}
        self._display.muted = True
        try:
            result = await self.connection.request("session/load", params)
        except Refused as error:
            raise _unusable(error) from error
        finally:
            self._display.muted = False
        await self._continue(session_id, cwd, result)

    async def _continue(self, session_id: str, cwd: str, result: Json) -> None:
        """Enter a session that has messages, and show the last of them."""
        is_open = session_id in self._restored  # it was entered before: nothing was restored
        self._enter(session_id, cwd, result)
        await self._show_before()
        meta = result.get("_meta")
        ours = meta.get("asnap") if isinstance(meta, Mapping) else None
        report = ours.get("restored") if isinstance(ours, Mapping) else None
        if not is_open:
            self._tell_restored(session_id, report if isinstance(report, Mapping) else {})
        elif session_id in self._untold:
            self._tell_restored(session_id, self._untold.pop(session_id))

    def _enter(self, session_id: str, cwd: str, result: Json) -> None:
        self.session_id, self._cwd = session_id, cwd
        self._restored.setdefault(session_id, "")
        self.entered(session_id)
        self._display.learn_settings(result)

    async def _show_before(self) -> None:
        from snapshot_plugin.model.meta import summary_of
        from snapshot_plugin.operations.conversation import said_of, spooled

        found = await anyio.to_thread.run_sync(spooled, self._store, self.session_id)
        snapshot = found.snapshot if found else await self._store.load(self.session_id)
        total = len(snapshot.messages)
        first = max(1, total - _SHOWN_BEFORE + 1)
        name = plain(snapshot.title or summary_of(snapshot)["opening"] or "") or self.session_id
        named = shlex.quote(as_reference(self.session_id))
        earlier = f", {first - 1} earlier: asnap show {named}" if first > 1 else ""
        self._display.line(f"{name} · {several(total, 'message')}{earlier}", bold=True)
        for said in said_of(snapshot, tools=False, first=first):
            self._display.lines(_shortened(list(lines_of(said, self._call.out.style))))

    def _tell_restored(self, session_id: str, report: Mapping[str, Any]) -> None:
        self._restored[session_id] = "restored"
        if "grade" in report:
            grade = plain(str(report["grade"]))
            self._restored[session_id] = f"restored: {grade}"
            count = several(int(report.get("messages", 0)), "message")
            words = (self._restored[session_id], count, _MEMORY.get(grade, ""))
            self._display.line(", ".join(filter(None, words)), fg="green")
        for listed in (report.get("notices"), report.get("differences")):
            for each in listed if isinstance(listed, list) else ():
                self._display.line(f"  {plain(str(each))}", dim=True)
        self._prompt.app.invalidate()  # the status line

    def _notified(self, method: str, params: Json) -> None:
        if method == "session/update":
            self._display.updated(params)
        elif method == "_asnap/restored":  # the agent ended, and the recorder restarted it
            if (session_id := str(params.get("sessionId"))) == self.session_id:
                self._tell_restored(session_id, params)
            else:
                self._untold[session_id] = params

    # The loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read and send prompts until the user leaves or the agent ends."""
        with self.keys.source.raw_mode():  # also between turn and prompt: the kernel would swallow Ctrl-D there
            self.keys.take_typed()
            await self._run()

    async def _run(self) -> None:
        while not self.connection.ended.is_set():
            try:
                text = await self._next()
            except KeyboardInterrupt:
                if self._is_leaving:
                    return
                if not self._prompt.default_buffer.text:
                    self._is_leaving = True
                    self._display.line("Ctrl-C again ends the chat (so does Ctrl-D)", dim=True)
                continue
            except EOFError:
                return
            self._is_leaving = False
            if not text.strip():
                continue
            try:
                if not await self._command(text.strip()):
                    return
            except (SnapshotError, Refused) as error:
                self._display.line(f"error: {plain(getattr(error, 'message', str(error)))}", fg="red")
                if hint := getattr(error, "hint", ""):
                    self._display.line(f"  {plain(hint)}")
        raise self.connection.gone()

    async def _next(self) -> str:
        """The next prompt: one typed while the agent worked, or else one read now.

        Raises:
            EOFError: the user wants to leave.
        """
        if self.keys.queued:
            text = self.keys.queued.pop(0)
            self._display.line(f"> {plain(text)}", bold=True)
            return text
        if self.keys.leaving:
            raise EOFError
        async with self.keys.keyboard:
            ahead, self.keys.ahead = self.keys.ahead, ""
            with patch_stdout(raw=True):  # output during the prompt appears above it
                return await self._prompt.prompt_async(default=ahead)

    async def _command(self, text: str) -> bool:
        """Run the typed command; False to leave."""
        name, _, rest = text.partition(" ")
        ours = {
            "/sessions": self._switch,
            "/fork": self._fork,
            "/rename": self._rename,
            "/export": self._export,
            "/open": self._open,
            "/help": self._help,
        }
        if name in ("/quit", "/exit"):
            return False
        if name in ours:
            await ours[name](rest.strip())
        else:
            await self._turn(text)
        return True

    async def _turn(self, text: str) -> None:
        params = {"sessionId": self.session_id, "prompt": [{"type": "text", "text": text}]}
        self._cancelling, self._abandoning = anyio.Event(), anyio.Event()
        stop = ""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_when_asked, tasks.cancel_scope)
            with self.keys.listening(self._cancel):
                try:
                    result = await self.connection.request("session/prompt", params)
                    stop = plain(str(result.get("stopReason", "")))
                except Refused as error:
                    stop = f"error: {plain(str(error))}"
            tasks.cancel_scope.cancel()
        self._display.end_turn()
        if stop not in ("end_turn", ""):
            self._display.line(f"({stop})", fg="yellow")
        self._display.line()

    def _cancel(self) -> None:
        (self._abandoning if self._cancelling.is_set() else self._cancelling).set()

    async def _cancel_when_asked(self, turn: anyio.CancelScope) -> None:
        """Cancel the turn at the first Ctrl-C; at the second, stop waiting for the agent."""
        await self._cancelling.wait()
        await self.connection.notify("session/cancel", {"sessionId": self.session_id})
        with anyio.move_on_after(_PROMPTLY):
            await self._abandoning.wait()
        if not self._abandoning.is_set():
            self._display.line("(waiting for the agent to cancel; Ctrl-C again ends the chat)", dim=True)
        await self._abandoning.wait()
        self.keys.leaving, self.keys.queued = True, []
        turn.cancel()

    async def _asked(self, method: str, params: Json) -> Json:
        """Answer a request of the agent; the user decides about permissions."""
        if method != "session/request_permission":
            raise NotImplementedError
        call = params.get("toolCall")
        call = call if isinstance(call, Mapping) else {}
        offered = [each for each in params.get("options") or () if isinstance(each, Mapping)]
        options = [_option(number, each) for number, each in enumerate(offered, 1)]
        chosen = await self.keys.ask(
            options,
            otherwise="none of them",
            colour=self._call.out.notes_have_colour,
            about=lambda: self._display.asked_about(call),
        )
        names = [option.name for option in options if option.value == chosen]
        self._display.line(f"  → {names[0] if names else 'none of them'}", dim=True)
        if chosen is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen}}

    # Commands ---------------------------------------------------------------------------------------------------

    async def _help(self, _rest: str) -> None:
        self._display.lines(_HELP, indent=_HELP[0].index("pick"))
        self._display.lines(_KEYS)

    async def _open(self, rest: str) -> None:
        if not rest.isdecimal() or not self._display.open(int(rest)):
            self._display.line("no such tool call; the number is in brackets after each call")

    async def _saved(self) -> None:
        """Save the session now, so that the store has the whole conversation."""
        from snapshot_plugin.manager.predeploy import ask_everyone

        await ask_everyone(self._store, within=_SAVE, only=[self.session_id])

    async def _switch(self, _rest: str) -> None:
        from snapshot_plugin.cli.picker import pick
        from snapshot_plugin.operations.sessions import session_rows

        rows = [row for row in await session_rows(self._store) if not row.live or row.session_id in self._restored]
        picked = await pick(self._call, self._store, rows)
        if picked is not None and picked.session_id != self.session_id:
            await self.load(picked.session_id, picked.cwd or "/")

    async def _fork(self, rest: str) -> None:
        from snapshot_plugin.manager.labels import checked_name
        from snapshot_plugin.operations.organise import free_title, record_new

        metas = await self._store.list()
        title = next((meta.title for meta in metas if meta.session_id == self.session_id), None)
        name = checked_name(rest) or free_title(title, "fork", {meta.title for meta in metas})
        params = {"sessionId": self.session_id, "cwd": self._cwd, "mcpServers": []}
        result = await self.connection.request("session/fork", {**params, "_meta": {"asnap": {"title": name}}})
        forked, summary = str(result.get("sessionId", "")), f"forked {self.session_id} in a chat"
        _, warning = await record_new(self._call.work, self._store, [forked], kind="fork", summary=summary)
        await self._continue(forked, self._cwd, result)
        if warning:
            self._display.line(plain(warning), fg="yellow")

    async def _rename(self, rest: str) -> None:
        from snapshot_plugin.operations.organise import rename

        if not rest:
            raise InvalidInput("give a name: /rename my talk")
        await self._saved()
        done = await rename(self._call.work, self._store, self.session_id, rest)
        self._display.line(plain(done.told), fg="green")

    async def _export(self, rest: str) -> None:
        from snapshot_plugin.cli.commands.share import form_of
        from snapshot_plugin.operations.exporting import export

        if not rest:
            raise InvalidInput("name a file: /export talk.md")
        await self._saved()
        form, path = form_of(rest), str(await anyio.Path(rest).expanduser())
        clean = form in ("markdown", "html")
        made = await export(self._call.work, self._store, [self.session_id], form=form, clean=clean, output=path)
        try:
            async with await anyio.open_file(path, "xb") as file:
                await file.write(made.data)
        except OSError as error:
            raise InvalidInput(f"{rest} cannot be written: {error.strerror}") from error
        taken = sum(made.about.redacted.values())
        self._display.line(f"wrote {plain(rest)}" + (f", {several(taken, 'secret')} removed" if taken else ""))


def _shortened(lines: list[str]) -> Iterator[str]:
    """Leave out the middle of a message that would fill screen after screen, such as a long paste."""
    if (hidden := len(lines) - _SHOWN_LINES) > 0:
        half = _SHOWN_LINES // 2
        lines = [*lines[:half], f"… {hidden} more lines …", *lines[-half:]]
    for line in lines:
        hidden, half = len(line) - _SHOWN_CHARACTERS, _SHOWN_CHARACTERS // 2
        yield f"{line[:half]} … {hidden} more characters … {line[-half:]}" if hidden > 0 else line


def _option(number: int, offered: Mapping[str, Any]) -> Option:
    name = plain(str(offered.get("name") or offered.get("optionId")))
    return Option(str(number) if number <= _DIGITS else "", name, str(offered.get("optionId")))


def _unusable(error: Refused) -> AgentUnavailable:
    if error.code == -32000:  # noqa: PLR2004 — ACP: authentication required
        return AgentUnavailable(
            f"the agent wants you to log in: {plain(str(error))}", hint="log in with the agent's own command first"
        )
    return AgentUnavailable(f"the agent cannot be used: {plain(str(error))}")
