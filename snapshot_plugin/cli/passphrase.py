"""The passphrase of a file: from another file, a variable, or typed. Never from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.layout import options
from snapshot_plugin.errors import KeyMissing

if TYPE_CHECKING:
    from snapshot_plugin.codec.sources import KeySource

__all__ = ["passphrase", "passphrase_options"]

passphrase_options = options(
    click.option("--passphrase", "ask", is_flag=True, help="Ask for the passphrase of the bundle."),
    click.option(
        "--passphrase-file", type=click.Path(dir_okay=False, path_type=Path), help="A private file that holds it."
    ),
    click.option("--passphrase-variable", metavar="NAME", help="An environment variable that holds it."),
)
"""The options of a command that reads or writes a file with a passphrase."""


def passphrase(call: Call, given: dict[str, Any], *, new: bool) -> KeySource | None:
    """Return what the options in *given* name; None if none was used. A *new* one is asked for twice."""
    from snapshot_plugin.codec.sources import EnvironmentKey, KeyFile, Passphrase

    ask, file, variable = (given.pop(name) for name in ("ask", "passphrase_file", "passphrase_variable"))
    if sum(map(bool, (ask, file, variable))) > 1:
        raise click.UsageError("give one of --passphrase, --passphrase-file and --passphrase-variable")
    if file:
        return KeyFile(file)
    if variable:
        return EnvironmentKey(variable, call.environ)
    if not ask:
        return None
    if not call.may_ask:
        raise KeyMissing(
            "nobody can be asked for the passphrase",
            hint="use --passphrase-file in a script",
            run=f"{click.get_current_context().command_path} --help",
        )
    return Passphrase(call.secret("Passphrase of the bundle", twice=new))
