"""``config``, ``paths``, ``completion``, ``schema`` and ``help``: the installation and its documentation."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import EXITS, AsnapCommand
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.operations.document import Document, Part

__all__ = [
    "ERROR_SCHEMA",
    "TOPICS",
    "Paths",
    "Settings",
    "completion_command",
    "config_command",
    "help_command",
    "paths_command",
    "schema_command",
    "schemas",
]

# asnap config -------------------------------------------------------------------------------------------------


class Setting(Part):
    """One setting: its value and the layer that set it."""

    name: str
    value: Any
    layer: str
    where: str

    @property
    def origin(self) -> str:
        """The layer, and the variable or file in it."""
        return f"{self.layer} {self.where}".rstrip()


class Settings(Document):
    """Every setting, and the settings that were found but not used."""

    kind: ClassVar[str] = "config"
    rows: ClassVar[str] = "settings"
    settings: tuple[Setting, ...]
    notices: tuple[str, ...]
    origin: bool


def show_settings(answer: Settings, out: Output) -> None:
    """Print every setting, and the settings that were found but not used."""
    columns = [Column("SETTING"), Column("VALUE", flexible=True)]
    rows = [[each.name, _shown(each.value)] for each in answer.settings]
    if answer.origin:
        columns.append(Column("FROM", flexible=True))
        rows = [[*row, each.origin] for row, each in zip(rows, answer.settings, strict=True)]
    out.table(columns, rows)


@declare(
    "config",
    answer=Settings,
    show=show_settings,
    examples=(
        ("asnap config show", "every setting in effect here"),
        ("asnap config show --origin", "and whether a flag, a variable, a file or the default set it"),
        ("ASNAP_SNAPSHOT_INTERVAL=30s asnap config show", "try a setting"),
    ),
    exits=(),
)
@click.argument("action", type=click.Choice(["show"]), default="show")
@click.option("--origin", is_flag=True, help="Show where each value came from.")
def config_command(call: Call, *, action: str, origin: bool) -> Settings:
    """Show the settings in effect here.

    A flag overrides ASNAP_* variables, which override the user's file.
    """
    from dataclasses import fields

    _ = action
    config = call.config
    settings = [
        Setting(
            name=field.name,
            value=_plain(getattr(config, field.name)),
            layer="flag" if call.place and field.name == "storage_path" else config.origin(field.name).layer,
            where=config.origin(field.name).where,
        )
        for field in fields(config)
    ]
    return Settings(settings=tuple(settings), notices=config.notices, origin=origin)


def _plain(value: Any) -> Any:
    return value.raw() if hasattr(value, "raw") else value


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


# asnap paths --------------------------------------------------------------------------------------------------


class PathEntry(Part):
    """One place: its purpose, its path, and whether it exists."""

    name: str
    path: str
    exists: bool
    purpose: str


class Paths(Document):
    """Every place this installation uses for this user."""

    kind: ClassVar[str] = "paths"
    rows: ClassVar[str] = "places"
    places: tuple[PathEntry, ...]


def show_paths(answer: Paths, out: Output) -> None:
    """Print every place this installation uses for this user."""
    columns = (Column("PLACE"), Column("PATH"), Column("", flexible=True))
    out.table(columns, [(place.name, place.path, place.purpose) for place in answer.places])


@declare(
    "paths",
    answer=Paths,
    show=show_paths,
    examples=(
        ("asnap paths", "where the store, the settings and the index are"),
        ("asnap paths --json", "the same for a script"),
        ('du -sh "$(asnap paths | grep ^store | cut -f2)"', "how large the store is"),
    ),
    exits=(),
)
def paths_command(call: Call) -> Paths:
    """Show where everything is stored.

    Each place can be moved with an XDG variable; the store also with --store or ASNAP_STORE.
    """
    from pathlib import Path

    from snapshot_plugin.manager import places

    found = (
        ("store", call.config.storage_path, "sessions; back this up"),
        ("config", str(places.user_config_file(call.environ)), "settings"),
        ("cache", str(places.user_cache_dir(call.environ)), "search index; delete freely"),
        ("state", str(places.user_state_dir(call.environ)), "operation log, for undo"),
    )
    return Paths(
        places=tuple(PathEntry(name=n, path=p, exists=Path(p).exists(), purpose=purpose) for n, p, purpose in found)
    )


# asnap completion ---------------------------------------------------------------------------------------------


@declare(
    "completion",
    examples=(
        ("asnap completion bash >> ~/.bashrc", "complete commands and options in bash"),
        ("asnap completion zsh >> ~/.zshrc", "in zsh"),
        ("asnap completion fish > ~/.config/fish/completions/asnap.fish", "in fish"),
    ),
    exits=(),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(call: Call, *, shell: str) -> None:
    """Print the completion script for a shell.

    Add it to the shell's own start-up file, once.
    """
    from click.shell_completion import get_completion_class

    from snapshot_plugin.cli import group

    kind = get_completion_class(shell)
    if kind is None:  # pragma: no cover — click knows the three
        raise click.BadParameter(f"no completion for {shell}")
    call.out.line(kind(group, {}, "asnap", "_ASNAP_COMPLETE").source())


# asnap schema -------------------------------------------------------------------------------------------------


_TEXT = {"type": "string"}
_TEXT_OR_NOTHING = {"type": ["string", "null"]}
ERROR_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "error",
    "type": "object",
    "properties": {
        "schema_version": {"const": 1},
        "kind": {"const": "error"},
        "code": _TEXT,
        "message": _TEXT,
        "session_id": _TEXT_OR_NOTHING,
        "hint": _TEXT,
        "next": _TEXT,
        "retryable": {"type": "boolean"},
        "cause": _TEXT_OR_NOTHING,
    },
    "required": ["schema_version", "kind", "code", "message", "hint", "next", "retryable"],
}
"""What a command that fails prints on stderr with ``--json``."""


@declare(
    "schema",
    examples=(
        ("asnap schema", "the schemas of all answers, by command"),
        ("asnap schema list", "what asnap list --json prints"),
        ("asnap schema error", "what a failing command prints on stderr"),
    ),
    exits=(),
)
@click.argument("name", required=False)
def schema_command(call: Call, *, name: str | None) -> None:
    """Print the JSON Schema of what --json prints.

    Every document has schema_version and kind. New fields may be added; ignore unknown ones.
    """
    known = schemas()
    if name is not None and name not in known:
        raise click.BadParameter(f"no command {name!r} answers in JSON; there are: {', '.join(known)}")
    call.out.line(json.dumps(known if name is None else known[name], indent=2))


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each command's answer, and of errors."""
    from snapshot_plugin.cli import every_command

    found = {
        name: each.answer.json_schema()
        for name, each in every_command().items()
        if isinstance(each, AsnapCommand) and each.answer
    }
    return {**found, "error": ERROR_SCHEMA}


# asnap help ---------------------------------------------------------------------------------------------------


_REFS = """\
How to name a session, wherever a command says REF:

  01jd7a        the beginning of its id, if no other id begins so
  fix-auth      its name (asnap rename)
  latest        the session that changed last; latest~2 is two before it
  tag:deploy    the session that has this tag
  fix-auth@12   its snapshot 12; works with all of the above
  id:latest     the session with exactly this id, whatever else it may mean

What fits several sessions is refused, with their ids. A session whose id reads like latest, tag:x or name@12 does
not take over what these mean: lists and hints name it with id: before its id."""
_POLICIES = """\
What asnap forget keeps. Rules add up, and each kept snapshot shows its reasons:

  --keep-last N      the newest N snapshots
  --keep-within 7d   everything younger than that
  --keep-hourly N    the last of each hour, for N hours that have any; also -daily, -weekly, -monthly
  --keep-tag TAG     snapshots with the tag; without this rule, every tagged snapshot
  --keep-sessions N  the N sessions that changed last, whole

The newest snapshot, pinned sessions and live sessions are always kept. A policy that keeps nothing is refused.
Forgotten snapshots stay in the trash until asnap purge; asnap undo restores them."""
_FORMAT = """\
A session is a directory of gzip files, one member per snapshot:

  zcat STORE/sessions/*/*.snap.gz | jq .     read a plain store without us
  gzip -t STORE/sessions/*/*.snap.gz         scrub any store, also an encrypted one, without its key

Documented to the byte in docs/reference/format.md. Files of every released version always load."""
_PLACES = """\
  ASNAP_STORE              the store: a directory or a URL
  ASNAP_KEY_FILE           a file with the key of an encrypted store
  ASNAP_KEYRING            the name of an entry in the system's keyring
  ASNAP_KEY_COMMAND        a command that prints the key
  ASNAP_KEY                the key itself
  ASNAP_PASSPHRASE         the passphrase itself
  ASNAP_SNAPSHOT_INTERVAL  and so on: every setting of asnap config show, in capitals
  NO_COLOR, FORCE_COLOR    no colour, or colour without a terminal
  XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_CACHE_HOME, XDG_STATE_HOME   see asnap paths"""

TOPICS = {
    "refs": _REFS,
    "policies": _POLICIES,
    "format": _FORMAT,
    "exit-codes": "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXITS.items()),
    "environment": _PLACES,
}
"""Topics that apply to every command."""


@declare(
    "help",
    examples=(
        ("asnap help refs", "how to name a session"),
        ("asnap help policies", "what asnap forget keeps"),
        ("asnap help exit-codes", "what exit statuses mean"),
    ),
    exits=(),
)
@click.argument("topic", metavar="[TOPIC|COMMAND]", required=False)
def help_command(call: Call, *, topic: str | None) -> None:
    """Explain a topic that applies to every command, or one command.

    Topics: refs, policies, format, exit-codes, environment. asnap COMMAND --help explains a command.
    """
    from snapshot_plugin.cli import COMMANDS, load

    if topic is None:
        call.out.line("Topics: " + ", ".join(TOPICS) + "\n\n  asnap help refs")
    elif topic in TOPICS:
        call.out.line(TOPICS[topic])
    elif topic in COMMANDS:
        found, above = load(topic), click.get_current_context().parent
        call.out.line(found.get_help(click.Context(found, info_name=topic, parent=above)))
    else:
        raise click.BadParameter(f"{topic!r} is neither a topic nor a command; topics: {', '.join(TOPICS)}")
