"""Print errors on stderr, as text or as JSON."""

from __future__ import annotations

import traceback

import click

from snapshot_plugin.cli.output import Output
from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.inert import readable_json
from snapshot_plugin.operations.failures import describe, hint_of, next_command, refusal
from snapshot_plugin.operations.text import plain

__all__ = ["tell", "tell_bug", "tell_usage"]


def tell(out: Output, error: SnapshotError) -> None:
    """Print an error; as one JSON document if JSON was requested."""
    if not out.is_text:
        out.warn(readable_json(describe(error), indent=None))
        return
    out.warn(f"error: {plain(error.message)}", fg="red")
    hint, following = hint_of(error), next_command(error)
    if hint and hint != following:
        out.warn(f"  {plain(hint)}")
    out.warn(f"  next: {following}")


def tell_usage(out: Output, error: click.ClickException) -> None:
    """Print what is wrong with the command line, and which help explains it."""
    context = getattr(error, "ctx", None)
    if context and isinstance(error, click.exceptions.NoArgsIsHelpError):
        out.warn(context.get_help())
        return
    help_line = f"{context.command_path} --help" if context else "asnap --help"
    message = error.format_message()
    if not out.is_text:
        out.warn(readable_json(refusal("usage", message, help_line), indent=None))
        return
    out.warn(f"error: {plain(message)}", fg="red")
    out.warn(f"  next: {help_line}")


def tell_bug(out: Output, error: Exception) -> None:
    """Print an unexpected error, with everything a bug report needs."""
    told = SnapshotError(
        f"a bug in asnap: {type(error).__name__}: {error}", hint="nothing was lost; please report it"
    )
    told.__cause__ = error
    out.warn("".join(traceback.format_exception(error)).rstrip())
    tell(out, told)
