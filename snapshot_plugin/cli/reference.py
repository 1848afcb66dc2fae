"""Generate the reference page of the command line from the commands.

``python -m snapshot_plugin.cli.reference > docs/reference/cli.md`` writes it; a test fails when it is old.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from snapshot_plugin.cli import COMMANDS, SECTIONS, every_command
from snapshot_plugin.cli.commands.setup import TOPICS
from snapshot_plugin.cli.layout import COMMON, EXITS, AsnapCommand

__all__ = ["page"]

_HEAD = """\
# The command line

Made from the commands' own help by `python -m snapshot_plugin.cli.reference`; do not edit.

Data goes to stdout, everything else to stderr. On a terminal there are tables and colours; in a pipe, the same
fields separated by tabs. `--json` prints one document and `--jsonl` one per line, each with `schema_version` and
`kind`; `asnap schema` prints the JSON Schema of every one. Nothing is asked without a terminal, or with
`--no-input`; commands that remove something then need `--yes`. A flag overrides `ASNAP_*` variables, which
override the user's `config.toml`: `asnap config show`.

An error says what happened, to which id, why, and on its last line the command to run next; with `--json` it is a
document with `code`, `message`, `session_id`, `hint`, `next`, `retryable` and `cause`.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    for title, topic in (("Naming a session", "refs"), ("Policies", "policies"), ("Environment", "environment")):
        yield f"## {title}\n\n```\n{TOPICS[topic]}\n```\n"
    yield "## Exit codes\n\n| code | meaning |\n|---|---|"
    yield from (f"| {code} | {meaning} |" for code, meaning in EXITS.items())
    yield "\nMore codes may be added; treat an unknown one as a failure.\n"
    commands = every_command()
    for section in SECTIONS:
        yield f"## {section}\n"
        for name, command in commands.items():
            if COMMANDS[name.split()[0]][0] == section and isinstance(command, AsnapCommand):
                yield from _command(name, command)
    some = next(command for command in commands.values() if isinstance(command, AsnapCommand) and command.answer)
    yield "## Options of every command that answers\n\n| option | |\n|---|---|"
    yield from _options(some, common=True)


def _command(name: str, command: AsnapCommand) -> Iterator[str]:
    yield f"### asnap {name}\n\n{' '.join((command.help or '').split())}\n"
    width = max(len(line) for line, _ in command.examples) + 2
    yield "```"
    yield from (f"{line.ljust(width)}# {what}" for line, what in command.examples)
    yield "```\n"
    options = list(_options(command, common=command.answer is None))
    if options:
        yield "| argument or option | |\n|---|---|"
        yield from options
        yield ""
    told = ", ".join(f"{code} ({EXITS[code]})" for code in command.exits[3:])
    answer = f"`--json`: `asnap schema {name}`. " if command.answer else ""
    yield f"{answer}Exit codes besides 0, 1, 2: {told or 'none'}.\n"


def _options(command: AsnapCommand, *, common: bool) -> Iterator[str]:
    context = click.Context(command, info_name=command.name)
    for param in command.params:
        if param.name in COMMON and not common:
            continue
        if common and command.answer and param.name not in COMMON:
            continue
        if getattr(param, "hidden", False):
            continue
        names, told = param.get_help_record(context) or (param.make_metavar(context), "")
        told = told or ("a session: see [Naming a session](#naming-a-session)" if "REF" in names else "")
        yield f"| `{_cell(names)}` | {_cell(told)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    click.echo(page(), nl=False)
