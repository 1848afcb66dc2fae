"""One invocation: what the user asked for in general (which store, which form, may I ask?), and how to get it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
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

__all__ = ["Call"]


@dataclass
class Call:
    """What every command is given."""

    out: Output
    place: str | None = None
    """``--store``, where it was given."""
    no_input: bool = False
    assume_yes: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    _typed: str | None = field(default=None, repr=False)
    """The passphrase that a person typed: asked for once."""

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Call:
        """Take the common options out of what click parsed; what is left is the command's own."""
        as_json, as_jsonl = options.pop("as_json"), options.pop("as_jsonl")
        form: Form = "jsonl" if as_jsonl else "json" if as_json else "text"
        place = options.pop("store")
        if place == "":  # a variable of a script that is not set: not a wish for the default store
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

    @cached_property
    def config(self) -> SnapshotConfig:
        """Settings from everywhere; ``--store`` beats the rest."""
        from snapshot_plugin.manager.config import SnapshotConfig

        flags: dict[str, Any] = {"storage_path": self.place} if self.place else {}
        try:
            return SnapshotConfig.load(environ=self.environ, **flags)
        except InvalidInput as error:
            error.run = "asnap doctor"  # the command line is not what is wrong
            raise

    @property
    def may_ask(self) -> bool:
        """Whether there is a person to ask: a terminal on both sides, and no ``--no-input``."""
        return not self.no_input and sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str) -> None:
        """Ask before something that cannot be taken back lightly. ``--yes`` answers; scripts must give it.

        Raises:
            InvalidInput: nobody can be asked and ``--yes`` was not given.
            click.Abort: the answer is no.
        """
        if self.assume_yes:
            return
        if not self.may_ask:
            raise InvalidInput(f"not done: {question}", hint="in a script, add --yes")
        with _interruptible():
            try:
                agreed = click.confirm(question, err=True)
            except click.Abort:
                click.echo(err=True)  # what is said next has a line of its own
                raise
        if not agreed:
            raise click.Abort("nothing was done")

    def secret(self, question: str, *, twice: bool = False) -> str:
        """Words that a person types unseen. Only where one `may_ask`."""
        with _interruptible():
            words: str = click.prompt(question, hide_input=True, confirmation_prompt=twice, err=True)
        return words

    # The store -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def store(self, *, create: bool = False, background: bool = False) -> AsyncIterator[SnapshotStore]:
        """The store this invocation is about, opened; what killed processes left in it is made snapshots first."""
        from snapshot_plugin.cli.recovering import recover_first

        async with self.opened(create=create, background=background) as store:
            await recover_first(self, store)
            yield store

    def opened(self, *, create: bool = False, background: bool = False) -> SnapshotStore:
        """The same, in a directory or behind a URL, as it is; for a program that stays."""
        from snapshot_plugin.manager.opening import open_configured_store

        return open_configured_store(
            self.config, key=self.key(), environ=self.environ, create=create, background=background
        )

    @asynccontextmanager
    async def live(self, *, create: bool = False, background: bool = False) -> AsyncIterator[SnapshotStore]:
        """The same, for what only a store with leases and spools can do: on this disk, or in a database."""
        from snapshot_plugin.live.place import required_place

        async with self.opened(create=create, background=background) as store:
            required_place(store)
            yield store

    @asynccontextmanager
    async def local(self, *, create: bool = False, background: bool = False) -> AsyncIterator[FilesystemStore]:
        """The same, for what only a store on this disk has: keys, spools, leases, files."""
        async with self.on_disk(create=create, background=background) as store:
            yield store

    def on_disk(self, *, create: bool = False, background: bool = False) -> FilesystemStore:
        """The same without an event loop."""
        from snapshot_plugin.store.filesystem import FilesystemStore

        store = self.opened(create=create, background=background)
        if not isinstance(store, FilesystemStore):
            where = self.config.storage_path
            raise InvalidInput(f"{where} is not a store on this disk", hint="give a directory with --store")
        return store

    @property
    def work(self) -> Work:
        """What operations are given: the settings, the time, and a bar for what takes long."""
        from functools import partial

        from snapshot_plugin.cli.progress import progress
        from snapshot_plugin.operations.work import Work

        return Work(self.config, self.environ, self.now, partial(progress, self.out))

    def key(self) -> KeySource | None:
        """What opens an encrypted store: the environment's key, or the words a person types when asked."""
        from snapshot_plugin.codec.sources import Passphrase, source_from_environment

        found = source_from_environment(self.environ)
        if found is None and self.may_ask and _is_encrypted(self.config.storage_path):
            self._typed = self._typed or self.secret("Passphrase")
            return Passphrase(self._typed)
        return found

    @property
    def child_environ(self) -> dict[str, str]:
        """The environment of a process of ours on the same store: it gets the passphrase that was typed."""
        return {**self.environ, **({"ASNAP_PASSPHRASE": self._typed} if self._typed else {})}


@contextmanager
def _interruptible() -> Iterator[None]:
    """While a person is asked, Ctrl-C ends the command at once: an event loop would wait for the answer first."""
    import signal

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_encrypted(path: str) -> bool:
    return os.path.isdir(os.path.join(path, "keys"))  # noqa: PTH112, PTH118 — no pathlib at start-up for one look


def _configure_logging(form: str, *, verbose: bool) -> None:
    import logging

    level = logging.DEBUG if verbose else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if form == "json" else _InertLines())
    logger = logging.getLogger("snapshot_plugin")
    logger.handlers[:] = [handler]
    logger.setLevel(level)


def _InertLines() -> Any:  # noqa: N802 — made only when asked for
    import logging

    from snapshot_plugin.inert import for_terminal

    class InertLines(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return for_terminal(super().format(record))

    return InertLines("%(name)s: %(message)s")


def _JsonLines() -> Any:  # noqa: N802 — made only when asked for
    import json
    import logging

    class JsonLines(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return json.dumps(
                {"level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
            )

    return JsonLines()
