"""One invocation of a command: the common options, and the store, settings and key they lead to."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from snapshot_plugin.cli.output import Form, Output
from snapshot_plugin.errors import InvalidInput

if TYPE_CHECKING:
    from snapshot_plugin.codec.sources import KeySource
    from snapshot_plugin.manager.config import SnapshotConfig
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore
    from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["Call", "our_module"]


@dataclass
class Call:
    """The context that every command gets."""

    out: Output
    place: str | None = None
    """The value of ``--store``, if given."""
    no_input: bool = False
    assume_yes: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    _typed: str | None = field(default=None, repr=False)
    """The passphrase that a person typed: asked for once."""

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Call:
        """Take the common options out of *options*; the rest are the command's own."""
        as_json, as_jsonl = options.pop("as_json"), options.pop("as_jsonl")
        form: Form = "jsonl" if as_jsonl else "json" if as_json else "text"
        place = options.pop("store")
        if place == "":  # probably an unset variable in a script: do not use the default store
            raise click.BadParameter("it is empty", param_hint="--store")
        out = Output(
            form,
            colour=options.pop("color"),
            quiet=options.pop("quiet"),
            verbose=options.pop("verbose"),
            place=place,
        )
        _configure_logging(options.pop("log_format"), verbose=out.verbose)
        return cls(
            out=out,
            place=place,
            no_input=options.pop("no_input"),
            assume_yes=options.pop("yes", False),
        )

    @classmethod
    def of_process(cls, place: str | None) -> Call:
        """The context of a command that owns its standard streams: no common options, and nobody to ask."""
        _configure_logging("text", verbose=False)
        return cls(out=Output(), place=place, no_input=True)

    @cached_property
    def config(self) -> SnapshotConfig:
        """The settings from all layers; ``--store`` has precedence."""
        from snapshot_plugin.manager.config import SnapshotConfig

        flags: dict[str, Any] = {"storage_path": self.place} if self.place else {}
        try:
            return SnapshotConfig.load(environ=self.environ, **flags)
        except InvalidInput as error:
            error.run = "asnap doctor"  # the settings are wrong, not the command line
            raise

    @property
    def may_ask(self) -> bool:
        """Whether there is a person to ask: a terminal on both sides, and no ``--no-input``."""
        return not self.no_input and sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str) -> None:
        """Ask before a change that is hard to undo. ``--yes`` answers; scripts must give it.

        Raises:
            InvalidInput: there is no terminal and ``--yes`` was not given.
            click.Abort: the answer is no.
        """
        if self.assume_yes:
            return
        if not self.may_ask:
            raise InvalidInput(f"not done: {question}", hint="in a script, add --yes")
        from snapshot_plugin.cli.questions import ask_yes_or_no

        if not ask_yes_or_no(question):
            raise click.Abort("nothing was done")

    def secret(self, question: str, *, twice: bool = False) -> str:
        """Ask for a secret, without echo. Call it only if `may_ask`."""
        from snapshot_plugin.cli.questions import ask_secret

        return ask_secret(question, twice=twice)

    # The store -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def store(self, *, create: bool = False, background: bool = False) -> AsyncIterator[SnapshotStore]:
        """Open the store of this invocation, after recovering what killed processes left behind."""
        from snapshot_plugin.cli.recovering import recover_first

        async with self.opened(create=create, background=background) as store:
            await recover_first(self, store)
            yield store

    def opened(self, *, create: bool = False, background: bool = False) -> SnapshotStore:
        """Open the store, a directory or a URL, without recovering anything; for long-running programs."""
        from snapshot_plugin.manager.opening import open_configured_store

        return open_configured_store(
            self.config, key=self.key(), environ=self.environ, create=create, background=background
        )

    @asynccontextmanager
    async def live(self, *, create: bool = False) -> AsyncIterator[SnapshotStore]:
        """Open the store for work that needs leases and spools: on this disk, or in a database."""
        from snapshot_plugin.live.place import required_place

        async with self.opened(create=create) as store:
            required_place(store)
            yield store

    def on_disk(self) -> FilesystemStore:
        """Open the store for work that needs files on this disk: keys, spools, leases."""
        from snapshot_plugin.store.filesystem import FilesystemStore

        store = self.opened()
        if not isinstance(store, FilesystemStore):
            where = self.config.storage_path
            raise InvalidInput(f"{where} is not a store on this disk", hint="give a directory with --store")
        return store

    @property
    def work(self) -> Work:
        """The context for operations: settings, time, and a progress bar."""
        from functools import partial

        from snapshot_plugin.cli.progress import progress
        from snapshot_plugin.operations.work import Work

        return Work(self.config, self.environ, self.now, partial(progress, self.out))

    def key(self) -> KeySource | None:
        """Return what opens an encrypted store: the environment's key, or a passphrase that is asked for."""
        from snapshot_plugin.codec.sources import Passphrase, source_from_environment

        found = source_from_environment(self.environ)
        if found is None and self.may_ask and _is_encrypted(self.config.storage_path):
            self._typed = self._typed or self.secret("Passphrase")
            return Passphrase(self._typed)
        return found

    @property
    def child_environ(self) -> dict[str, str]:
        """The environment of our own child processes on the same store: includes a typed passphrase."""
        return {**self.environ, **({"ASNAP_PASSPHRASE": self._typed} if self._typed else {})}


def our_module(name: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this package; ``-P`` ignores the current directory."""
    return [sys.executable, "-P", "-m", name, *arguments]


def _is_encrypted(path: str) -> bool:
    return os.path.isdir(os.path.join(path, "keys"))  # noqa: PTH112, PTH118 — no pathlib at start-up for one look


def _configure_logging(form: str, *, verbose: bool) -> None:
    import json
    import logging

    from snapshot_plugin.inert import plain

    class LogLines(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            level, message = record.levelname.lower(), super().format(record)
            if form == "json":
                return json.dumps({"level": level, "logger": record.name, "message": message})
            # Ids are in it, and agents choose them: a record without a traceback is one line.
            message = plain(message, lines=bool(record.exc_info))
            return f"{record.name}: {message}" if verbose else f"{level}: {message}"

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines())
    logger = logging.getLogger("snapshot_plugin")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
