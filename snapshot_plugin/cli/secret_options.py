"""Options that say where a key or passphrase comes from: a file, a variable, the keyring, or typed.

Never an argument: other users can read the command line.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.layout import options
from snapshot_plugin.errors import InvalidInput, KeyMissing

if TYPE_CHECKING:
    from snapshot_plugin.codec.sources import KeySource

__all__ = ["NEW_SECRETS", "new_secret", "new_secret_options", "passphrase", "passphrase_options"]

NEW_SECRETS = ("new_key_file", "generate", "keyring", "new_variable")
"""The parameters that say where a new secret comes from; at most one is given."""
_FILE = click.Path(dir_okay=False, path_type=Path)
new_secret_options = options(
    click.option("--label", default="", help="What the slot is for."),
    click.option("--new-key-file", type=_FILE, help="A file with the key."),
    click.option("--generate", type=_FILE, help="Make a key and write it to this new file."),
    click.option(
        "--keyring", metavar="NAME", help="Make a key and keep it in the system's keyring under this name."
    ),
    click.option("--new-variable", metavar="NAME", help="An environment variable with the key or passphrase."),
)
"""The options of a command that takes a new secret."""


def new_secret(call: Call, given: dict[str, Any], *, again: bool = False) -> KeySource:
    """Return the secret that the options name; without one, ask for a passphrase twice.

    With *again*, a key that an interrupted call generated is reused, not refused.
    """
    from snapshot_plugin.codec.sources import EnvironmentKey, KeyFile, Passphrase

    named = [name for name in NEW_SECRETS if given[name]]
    if len(named) > 1:
        raise click.UsageError("give one of --new-key-file, --generate, --keyring and --new-variable")
    if given["generate"]:
        return KeyFile(_generated(given["generate"], again=again))
    if given["keyring"]:
        return _in_keyring(given["keyring"], again=again)
    if given["new_key_file"]:
        return KeyFile(given["new_key_file"])
    if given["new_variable"]:
        return EnvironmentKey(given["new_variable"], call.environ)
    if not call.may_ask:
        raise KeyMissing(
            "no new key was given",
            hint="use --new-key-file, --generate, --keyring or --new-variable",
            run=f"{click.get_current_context().command_path} --help",
        )
    return Passphrase(call.secret("New passphrase", twice=True))


def _in_keyring(name: str, *, again: bool) -> KeySource:
    from snapshot_plugin.codec.keys import generate_key
    from snapshot_plugin.codec.sources import KEYRING_SERVICE, KeyringKey

    source = KeyringKey(KEYRING_SERVICE, name)
    if not (again and source.exists()):
        source.keep(generate_key())
    return source


def _generated(path: Path, *, again: bool) -> Path:
    from snapshot_plugin.codec.keys import generate_key
    from snapshot_plugin.system.files import sync_all, sync_dir

    if again and path.exists():
        if path.stat().st_size:
            return path
        path.unlink()  # an interrupted call left it empty
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise InvalidInput(f"{path} exists already", hint="name a new file: a key is never overwritten") from error
    with os.fdopen(fd, "w") as file:
        file.write(generate_key() + "\n")
        file.flush()
        sync_all(fd)
    sync_dir(path.parent)  # durable before anything is encrypted with it
    return path


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
