"""Find and remove secrets in stored sessions. Reports kinds and places, never a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import anyio.to_thread

from snapshot_plugin.codec.document import StoredDocument, parsed
from snapshot_plugin.errors import Damaged, InvalidInput, SnapshotNotFound
from snapshot_plugin.live.place import held_alone, must_be_recovered
from snapshot_plugin.live.ports import LocalStore
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.model.ids import dirname_of
from snapshot_plugin.model.redact import Redaction, RedactionReport, redact
from snapshot_plugin.model.value import JsonObject, Value
from snapshot_plugin.operations.undo import Operation, OperationLog
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.store.keyed import KeyedStore
from snapshot_plugin.store.transfer import Copied

__all__ = [
    "FIX",
    "SessionFixed",
    "SessionSecrets",
    "find_secrets",
    "find_secrets_in_log",
    "find_secrets_in_trash",
    "take_secrets_out",
    "take_secrets_out_of_log",
]

FIX: Final = "redact"
"""The trigger of a snapshot from which secrets were removed."""

_NAMES: Final = frozenset({"session_id", "agent_session_id"})
_ASIDE: Final = ("quarantine", "live.aside-")
_LABELS: Final = frozenset({"title", "tags", "tags_after", "note"})
"""The parts of an undo step that people wrote. The others are ids, and are needed as they are."""


class SessionSecrets(Value):
    """The secrets found in one session: places in its newest snapshot, and every snapshot that holds one."""

    session_id: str
    places: tuple[Redaction, ...] = ()
    kinds: JsonObject
    """How many of each kind: in the newest snapshot, or at most in an older one."""
    snapshots: tuple[int, ...] = ()
    problem: str | None = None
    """Why the older snapshots could not be searched."""
    not_searched: tuple[str, ...] = ()
    """Files beside the snapshots that are no longer read, and may hold secrets."""
    token: str | None = None
    """Its token in the trash, if it is there."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.kinds


class SessionFixed(Value):
    """The result of a fix: the new snapshot, the dropped ones, and the steps that undo it."""

    session_id: str
    snapshot: int
    dropped: tuple[int, ...] = ()
    steps: tuple[JsonObject, ...] = ()


async def find_secrets(store: SnapshotStore, session_id: str) -> SessionSecrets:
    """Search every snapshot of a session. The newest one must be readable.

    Raises:
        SnapshotError: as `SnapshotStore.read`.
    """
    found = await store.read(session_id)
    report = redact(found.snapshot)[1]
    older: dict[int, Counter[str]] = {}
    problem = None
    try:
        older = await _older(store, session_id, is_clean=report.is_empty)
    except Damaged as error:
        problem = error.message
    held = {**older, **({found.ref.seq: Counter(report.counts)} if not report.is_empty else {})}
    if report.is_empty:
        held.pop(found.ref.seq, None)
    return SessionSecrets(
        session_id=session_id,
        places=report.redactions,
        kinds=_most(held.values(), report),
        snapshots=tuple(sorted(held)),
        problem=problem,
        not_searched=await anyio.to_thread.run_sync(_not_searched, store, session_id),
    )


async def find_secrets_in_trash(store: SnapshotStore) -> list[SessionSecrets]:
    """Search every session in the trash; return those that hold a secret or cannot be read."""
    found: list[SessionSecrets] = []
    if not isinstance(store, KeyedStore):
        return found
    for entry in await store.trash():
        held: dict[int, Counter[str]] = {}
        problem = None
        try:
            held = await anyio.to_thread.run_sync(_held, await store.trashed_copies(entry), False)
        except (Damaged, SnapshotNotFound) as error:
            problem = error.message
        if held or problem:
            kinds = _most(held.values(), RedactionReport())
            found.append(
                SessionSecrets(
                    session_id=entry.session_id,
                    kinds=kinds,
                    snapshots=tuple(sorted(held)),
                    problem=problem,
                    token=entry.token,
                )
            )
    return found


async def take_secrets_out(store: SnapshotStore, session_id: str, *, clock: Clock = utc_now) -> SessionFixed:
    """Save the session without its secrets, and drop every snapshot that holds one.

    A copy of the unredacted session goes to the trash: the secrets are gone once that copy is purged.

    Raises:
        SessionLocked: the session is live.
        Conflict: the spool of a killed process is not recovered yet.
        Damaged: a snapshot cannot be read, so it may hold secrets.
    """
    if not isinstance(store, LogStore):
        raise InvalidInput("this store keeps no copies, so what is removed could not be restored")
    async with held_alone(store, session_id, clock, to="take secrets out"):
        await must_be_recovered(store, session_id)
        found = await store.read(session_id, strict=True)
        redacted, report = redact(found.snapshot)
        seq, steps = found.ref.seq, list[dict[str, Any]]()
        held = set(await _older(store, session_id, is_clean=report.is_empty))
        if not report.is_empty:
            held |= {seq}
            seq = (await store.save(redacted, trigger=FIX, base=seq)).seq
        dropped = tuple(sorted(held))
        if dropped:
            trashed = await store.drop(session_id, dropped)
            steps.append({"do": "restore", "session_id": session_id, "token": trashed.token})
        if not report.is_empty:
            steps.append({"do": "revert", "session_id": session_id, "seq": found.ref.seq})
    return SessionFixed(session_id=session_id, snapshot=seq, dropped=dropped, steps=tuple(steps))


def _most(counts: Iterable[Counter[str]], newest: RedactionReport) -> dict[str, int]:
    most: Counter[str] = Counter()
    for each in counts:
        most |= each
    return dict(sorted({**most, **newest.counts}.items()))


# Older snapshots -------------------------------------------------------------------------------------------------


async def _older(store: SnapshotStore, session_id: str, *, is_clean: bool) -> dict[int, Counter[str]]:
    """Return the snapshots that hold secrets, and how many of each kind. *is_clean*: the newest holds none."""
    if isinstance(store, LogStore):
        copies = await store.take_out(session_id)
        return await anyio.to_thread.run_sync(_held, copies, is_clean)
    found: dict[int, Counter[str]] = {}
    for meta in (await store.history(session_id))[1:]:
        counts = redact(await store.load(session_id, at=meta.seq))[1].counts
        if counts:
            found[meta.seq] = Counter(counts)
    return found


def _held(copies: Sequence[Copied], is_clean: bool) -> dict[int, Counter[str]]:
    """Search line by line, each line once: snapshots share most lines.

    Lines of a clean newest snapshot are clean.
    """
    known: dict[bytes, Counter[str]] = {line: Counter() for line in _lines(_last(copies))} if is_clean else {}
    found: dict[int, Counter[str]] = {}
    document = StoredDocument()
    for copy in copies:
        document.apply(*copy)
        total: Counter[str] = Counter()
        for line in _lines(document):
            if line not in known:
                known[line] = _kinds(line)
            if known[line]:
                total += known[line]
        if total:
            found[copy.header.hi] = total
    return found


def _last(copies: Sequence[Copied]) -> StoredDocument:
    document = StoredDocument()
    for copy in copies:
        document.apply(*copy)
    return document


def _lines(document: StoredDocument) -> list[bytes]:
    return [*document.sections.values(), *document.messages]


def _kinds(line: bytes) -> Counter[str]:
    entry = parsed(line)
    if "message" in entry:
        return Counter(redact(entry["message"])[1].counts)
    name = entry["section"][-1]
    return Counter() if name in _NAMES else Counter(redact({name: entry["value"]})[1].counts)


# What undo remembers ---------------------------------------------------------------------------------------------


async def find_secrets_in_log(log: OperationLog, sessions: Collection[str] | None = None) -> int:
    """Count the operations whose names, tags or notes hold secrets: of these *sessions*, or of all."""
    return sum(_without_secrets(done, sessions) is not done for done in await log.read())


async def take_secrets_out_of_log(log: OperationLog, sessions: Collection[str] | None = None) -> int:
    """Remove secrets from the names, tags and notes that undo would restore. Returns how many changed."""
    return await log.rewrite(lambda done: _without_secrets(done, sessions))


def _without_secrets(done: Operation, sessions: Collection[str] | None) -> Operation:
    if sessions is not None and not any(step.get("session_id") in sessions for step in done.steps):
        return done
    summary = redact(done.summary)[0]
    steps = [{**step, **redact({name: step[name] for name in _LABELS & step.keys()})[0]} for step in done.steps]
    if summary == done.summary and steps == list(done.steps):
        return done
    return done.evolve(summary=summary, steps=tuple(steps))


# Files beside the snapshots --------------------------------------------------------------------------------------


def _not_searched(store: SnapshotStore, session_id: str) -> tuple[str, ...]:
    if not isinstance(store, LocalStore):
        return ()
    directory = store.path / "sessions" / dirname_of(session_id)
    return tuple(sorted(path.name for path in directory.iterdir() if path.name.startswith(_ASIDE)))
