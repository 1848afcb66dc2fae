"""``asnap schema``: the JSON Schema of every answer."""

from __future__ import annotations

import json
from typing import Any

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import AsnapCommand
from snapshot_plugin.cli.command import command as declare

__all__ = ["ERROR_SCHEMA", "command", "schemas"]

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
def command(call: Call, *, name: str | None) -> None:
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
