"""``asnap completion``: completion for the user's shell."""

from __future__ import annotations

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare

__all__ = ["command"]


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
def command(call: Call, *, shell: str) -> None:
    """Print the completion script for a shell.

    Add it to the shell's own start-up file, once.
    """
    from click.shell_completion import get_completion_class

    from snapshot_plugin.cli import group

    kind = get_completion_class(shell)
    if kind is None:  # pragma: no cover — click knows the three
        raise click.BadParameter(f"no completion for {shell}")
    call.out.line(kind(group, {}, "asnap", "_ASNAP_COMPLETE").source())
