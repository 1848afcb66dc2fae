"""HUMANS AND SCRIPTS: the command ``asnap``, one file per command, each imported when it is called."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from snapshot_plugin.errors import EXIT_CODES, SnapshotError

__all__ = ["main"]

_COMMANDS = {"demo": "snapshot_plugin.cli.demo", "mcp": "snapshot_plugin.cli.mcp", "run": "snapshot_plugin.cli.run"}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        _ = ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        _ = ctx
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(_COMMANDS[cmd_name]).command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Show our own errors as what happened and what to do next, with the exit code their kind has."""
        try:
            return super().invoke(ctx)
        except SnapshotError as error:
            click.echo(f"error: {error.message}", err=True)
            if error.hint:
                click.echo(f"  {error.hint}", err=True)
            sys.exit(EXIT_CODES.get(error.code, 1))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="snapshot-plugin")
def main() -> None:
    """Agent sessions that do not die: snapshots that survive crashes, deploys and upgrades."""
