"""Sources of a store's secret. A source is read each time a store is opened, and keeps no copy.

Every source raises `KeyMissing` if it has no secret. No message and no ``repr`` shows a secret, or the arguments of
a command, which may contain one.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from snapshot_plugin.errors import InvalidInput, KeyMissing
from snapshot_plugin.extras import needs_extra

__all__ = [
    "KEYRING_SERVICE",
    "CommandKey",
    "EnvironmentKey",
    "KeyFile",
    "KeySource",
    "KeyringKey",
    "Passphrase",
    "source_from_environment",
]

KEYRING_SERVICE: Final = "asnap"
_MAX_BYTES: Final = 65536
"""The longest secret. A mistyped path may lead to a large file."""


class KeySource(Protocol):
    """Returns a generated key or a passphrase."""

    @property
    def kind(self) -> str:
        """The kind of source that a store may record, such as ``passphrase`` or ``key-file``."""
        ...

    def secret(self) -> bytes:
        """The secret, without surrounding line ends. May block. Raises `KeyMissing` if there is none."""
        ...


@dataclass(frozen=True)
class Passphrase:
    """A passphrase or generated key that the caller already has."""

    words: str = field(repr=False)
    kind: str = field(default="passphrase", init=False)

    def secret(self) -> bytes:
        """The passphrase."""
        return _checked(_encoded(self.words), "the passphrase")


@dataclass(frozen=True)
class KeyFile:
    """The content of a file that only its owner can read."""

    path: str | os.PathLike[str]
    kind: str = field(default="key-file", init=False)

    def secret(self) -> bytes:
        """The content without the line end."""
        what = f"the key file {os.fspath(self.path)}"
        try:
            data = self._read(what)
        except OSError as error:
            raise KeyMissing(f"{what} cannot be read: {error.strerror}") from error
        return _checked(data, what)

    def _read(self, what: str) -> bytes:
        # O_NONBLOCK: opening a pipe without a writer would block. The mode is checked on the open file.
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise KeyMissing(f"{what} is not a regular file")
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise KeyMissing(f"{what} is open to other users", hint=f"chmod 600 {os.fspath(self.path)}")
            return file.read(_MAX_BYTES + 1)


@dataclass(frozen=True)
class EnvironmentKey:
    """The value of an environment variable, read when it is needed."""

    name: str
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False, compare=False)
    kind: str = field(default="environment", init=False)

    def secret(self) -> bytes:
        """The value."""
        value = self.environ.get(self.name)
        if value is None:
            raise KeyMissing(f"the environment variable {self.name} is not set")
        return _checked(_encoded(value), f"the environment variable {self.name}")


@dataclass(frozen=True)
class CommandKey:
    """The output of a command such as ``pass show agent``, run without a shell and without standard input."""

    argv: Sequence[str] = field(repr=False)
    timeout: float = 30.0
    kind: str = field(default="command", init=False)

    def __post_init__(self) -> None:
        if isinstance(self.argv, str):
            raise InvalidInput("the key command is one text", hint="as CommandKey(['pass', 'show', 'agent'])")
        object.__setattr__(self, "argv", tuple(self.argv))  # hashable: stores are shared by place and key

    def secret(self) -> bytes:
        """The output without the line end. The command's stderr is passed through."""
        import subprocess  # noqa: PLC0415 — most stores have no such key, and open faster

        if not self.argv:
            raise KeyMissing("the key command is empty")
        what = f"the key command {self.argv[0]}"
        try:
            # Standard input may be a protocol stream. The user chose the arguments, and no shell interprets them.
            done = subprocess.run(  # noqa: S603 — running it is the feature
                self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=self.timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise KeyMissing(f"{what} did not finish within {self.timeout:g} seconds") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "its arguments are not valid"
            raise KeyMissing(f"{what} cannot be started: {reason}") from None
        if done.returncode:
            raise KeyMissing(f"{what} failed with status {done.returncode}")
        return _checked(done.stdout, f"the output of {what}")


@dataclass(frozen=True)
class KeyringKey:
    """An entry of the desktop's keyring. Needs the extra ``snapshot-plugin[keyring]``."""

    service: str
    username: str
    kind: str = field(default="keyring", init=False)

    def secret(self) -> bytes:
        """The entry's password."""
        password = self._password()
        if password is None:
            raise KeyMissing(f"{self._name} does not exist", hint="check the name of the entry")
        return _checked(_encoded(password), self._name)

    def exists(self) -> bool:
        """Whether the entry exists."""
        return self._password() is not None

    def keep(self, secret: str) -> None:
        """Create the entry. Raises `InvalidInput` if it exists: a key is never overwritten."""
        if self.exists():
            raise InvalidInput(f"{self._name} exists already", hint="name a new entry: a key is never overwritten")
        self._ask(lambda keyring: keyring.set_password(self.service, self.username, secret))

    @property
    def _name(self) -> str:
        return f"the keyring entry {self.service}/{self.username}"

    def _password(self) -> str | None:
        found: str | None = self._ask(lambda keyring: keyring.get_password(self.service, self.username))
        return found

    def _ask(self, work: Callable[[Any], Any]) -> Any:
        with needs_extra("keyring", "keeping a key in the keyring needs the package keyring"):
            import keyring  # noqa: PLC0415 — an extra
            from keyring.errors import KeyringError  # noqa: PLC0415 — an extra
        try:
            return work(keyring)
        except KeyringError as error:
            hint = "unlock the keyring, or use a key file, a key command or a passphrase"
            raise KeyMissing(f"{self._name} cannot be reached: {type(error).__name__}", hint=hint) from None


def source_from_environment(environ: Mapping[str, str]) -> KeySource | None:
    """The source that the environment names; None if it names none.

    The first variable that is set is used: ``ASNAP_KEY``, ``ASNAP_KEY_FILE``, ``ASNAP_KEY_COMMAND``,
    ``ASNAP_KEYRING`` (an entry of "asnap" in the system's keyring), ``ASNAP_PASSPHRASE``. An empty variable counts
    as set, and raises `KeyMissing` when it is read, so that it does not turn encryption off.
    """
    if "ASNAP_KEY" in environ:
        return EnvironmentKey("ASNAP_KEY", environ)
    if "ASNAP_KEY_FILE" in environ:
        return KeyFile(environ["ASNAP_KEY_FILE"])
    if "ASNAP_KEY_COMMAND" in environ:
        return CommandKey(_split(environ["ASNAP_KEY_COMMAND"]))
    if "ASNAP_KEYRING" in environ:
        return KeyringKey(KEYRING_SERVICE, environ["ASNAP_KEYRING"])
    if "ASNAP_PASSPHRASE" in environ:
        return Passphrase(environ["ASNAP_PASSPHRASE"])
    return None


def _split(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise KeyMissing(f"ASNAP_KEY_COMMAND cannot be split into words: {error}") from None


def _encoded(text: str) -> bytes:
    # os.environ decodes bytes that are not UTF-8 as lone surrogates; this restores the bytes.
    return text.encode(errors="surrogateescape")


def _checked(secret: bytes, what: str) -> bytes:
    if len(secret) > _MAX_BYTES:
        raise KeyMissing(f"{what} is too long for a key: over {_MAX_BYTES} bytes")
    secret = secret.strip(b"\r\n")
    if not secret:
        raise KeyMissing(f"{what} is empty")
    return secret
