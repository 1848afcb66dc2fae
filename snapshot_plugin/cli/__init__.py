"""The command ``asnap``: one module per family of commands, imported when one of them is called.

A command returns a `Document` (`snapshot_plugin.operations.document`), which `output` prints as
text or JSON.
`command` and `call` are the frame of every command, `failures` reports errors. Nothing else prints.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from snapshot_plugin.errors import SnapshotError

if TYPE_CHECKING:
    from snapshot_plugin.cli.output import Output

__all__ = ["COMMANDS", "SECTIONS", "every_command", "group", "load", "main"]

INTERRUPTED = 130
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("Run", "Run any ACP agent so that its sessions survive."),
    "chat": ("Run", "Talk to any ACP agent in the terminal, recorded."),
    "resume": ("Run", "Resume a session: pick it, see what will be restored, start the agent."),
    "demo": ("Run", "Watch an agent killed in mid-sentence and resumed."),
    "mcp": ("Run", "Give an agent a memory over MCP."),
    "serve": ("Run", "Serve a front end in another language, as JSON lines."),
    "list": ("Find", "List sessions."),
    "show": ("Find", "One session: summary, timeline, transcript."),
    "search": ("Find", "Full text over all sessions."),
    "ui": ("Find", "Read, compare and manage sessions in the browser."),
    "stats": ("Find", "Tokens, cost, activity and topics over time."),
    "why": ("Find", "What triggered a snapshot, and why the policy keeps or drops it."),
    "diff": ("Find", "What differs between two sessions or snapshots."),
    "rename": ("Change", "Give a session a name."),
    "tag": ("Change", "Tag a session, or see which tags its content suggests."),
    "pin": ("Change", "Protect a session from every retention policy."),
    "note": ("Change", "Write a note on a session."),
    "fork": ("Change", "Branch a session at any message."),
    "merge": ("Change", "Merge two branches of one conversation."),
    "forget": ("Change", "Remove sessions, or old snapshots by policy."),
    "undo": ("Change", "Undo a forget, rename, tag, import or fork."),
    "purge": ("Change", "Empty the trash permanently."),
    "export": ("Share", "Write a session to a bundle, Markdown or HTML."),
    "import": ("Share", "Read a bundle, or another tool's session file."),
    "secrets": ("Share", "Find secrets in sessions, and remove them."),
    "snapshot": ("Operate", "Save every live session now, before a deploy."),
    "recover": ("Operate", "Save the records of killed processes as snapshots."),
    "archive": ("Operate", "Copy sessions to a bucket, and restore them on another machine."),
    "check": ("Operate", "Verify the store down to every byte."),
    "doctor": ("Operate", "Check everything that could be wrong, and say what to do."),
    "migrate": ("Operate", "Upgrade old files and sessions to the current version."),
    "keys": ("Set up", "Encrypt a store; add, remove, change and rotate keys."),
    "config": ("Set up", "The settings in effect, and where each came from."),
    "paths": ("Set up", "Where everything is kept."),
    "completion": ("Set up", "Completion for your shell."),
    "schema": ("Set up", "The JSON Schema of every answer."),
    "help": ("Set up", "Topics: references, policies, the format, exit codes."),
}
"""Every command: its heading and its line in ``asnap --help``."""
_MODULES = {
    "find": ("list", "show", "search", "stats", "diff"),
    "organise": ("rename", "tag", "pin", "note", "fork", "merge"),
    "care": ("forget", "undo", "purge", "why", "check", "migrate"),
    "share": ("export", "import", "secrets"),
    "operate": ("snapshot", "recover", "archive", "doctor"),
    "setup": ("config", "paths", "completion", "schema", "help"),
    "serve": ("serve", "mcp", "ui"),
}
"""The modules of `commands` that hold a family; a command that starts an agent has a module of its own name."""
SECTIONS = tuple(dict.fromkeys(section for section, _ in COMMANDS.values()))
"""The headings, in the order of ``asnap --help``."""


def load(name: str) -> click.Command:
    """Import a command and return it."""
    family = next((module for module, names in _MODULES.items() if name in names), name)
    found: click.Command = getattr(import_module(f"snapshot_plugin.cli.commands.{family}"), f"{name}_command")
    return found


def every_command() -> dict[str, click.Command]:
    """Return all commands by full name; those of a group as ``keys add``. Imports everything."""
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = load(name)
        inner = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {part}": each for part, each in inner.items()} if inner else {name: command}
    return found


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        _ = ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            import difflib

            close = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"There is no command {cmd_name!r}.{meant}")
        return load(cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader closed the pipe; click would report a failure
            ctx.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _ = ctx
        for heading in SECTIONS:
            with formatter.section(heading):
                formatter.write_dl([(name, line) for name, (under, line) in COMMANDS.items() if under == heading])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="snapshot-plugin")
def group() -> None:
    """Record agent sessions, and restore them after a crash, a deploy or an upgrade."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command and exit with its status. Errors go to stderr, as text or as JSON."""
    words = sys.argv[1:] if arguments is None else arguments
    _prepare_streams()
    try:
        status = _run(words)
    except BrokenPipeError:  # the reader has gone away
        status = 0
    if not _is_flushed(sys.stdout):
        status = status or 1
    _is_flushed(sys.stderr)
    sys.exit(status)


def _is_flushed(stream: TextIO) -> bool:
    """Write what is buffered; False if that is refused. It is dropped then, or Python would fail at its end."""
    try:
        stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return isinstance(error, BrokenPipeError)
    return True


def _prepare_streams() -> None:
    """Open /dev/null for closed standard streams; otherwise the next opened file would take their descriptor.

    Characters that the locale cannot encode are written as question marks.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _run(words: list[str]) -> int:
    try:
        result: Any = group.main(words, prog_name="asnap", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt) as stopped:
        click.echo(str(stopped) or "interrupted", err=True)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 — whatever it is, the user is told in our form
        return _tell(_output(words), error)
    return result if isinstance(result, int) else 0


def _tell(out: Output, error: Exception) -> int:
    from snapshot_plugin.cli import failures
    from snapshot_plugin.operations.failures import exit_code

    if isinstance(error, click.ClickException):
        failures.tell_usage(out, error)
        return error.exit_code
    if isinstance(error, SnapshotError):
        failures.tell(out, error)
        return exit_code(error)
    failures.tell_bug(out, error)
    return 1


def _output(words: list[str]) -> Output:
    from snapshot_plugin.cli.output import Output

    # The command line may be the error, so it is searched, not parsed.
    ours = words[: words.index("--")] if "--" in words else words
    return Output("json" if {"--json", "--jsonl"} & set(ours) else "text")
