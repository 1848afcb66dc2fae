"""The state a store object keeps of the sessions it writes.

`Writers` finds the snapshot a save builds on; `SessionWriter` makes the save cost only what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from snapshot_plugin.codec.document import (
    CHAIN_START,
    GROUPS,
    Digest,
    chain_from,
    message_line,
    meta_line,
    path_key,
    plain_digest,
    removed,
    root_of,
    section_line,
)
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.errors import Conflict, Damaged, SnapshotNotFound
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model.meta import LoadedFrom
from snapshot_plugin.model.snapshot import CURRENT_VERSION, SessionSnapshot, origin_of, with_origin
from snapshot_plugin.model.splice import Splice, splice_between
from snapshot_plugin.model.value import ABSENT
from snapshot_plugin.store.log import FrameLog, Tip, overtaken
from snapshot_plugin.store.recent import Recent
from snapshot_plugin.store.walk import FoundSnapshot, error_of, find

__all__ = ["Delta", "Loaded", "SessionWriter", "Writers"]

_ELSEWHERE = {"messages", "version", "session_id", "updated_at"}
_SLACK = 64 * 1024
_READ = 4
"""How many sessions that were only read are kept ready for a save; each keeps its lines in memory."""
_TIPS = 1 << 14
"""How many sessions' own last saves a store object remembers after their writers were dropped."""


class _Section(NamedTuple):
    digest: bytes
    size: int


class Delta(NamedTuple):
    """The change from one snapshot to the next, encoded but not yet stored."""

    snapshot: SessionSnapshot
    splice: Splice
    full: bool
    payload: bytes
    digests: list[bytes]
    sizes: list[int]
    chain: list[bytes]
    sections: dict[bytes, _Section]
    root: str
    changed: bool
    written: int
    message_bytes: int
    live: int
    """How many bytes the new snapshot has; all other bytes written so far are dead."""


class SessionWriter:
    """The newest snapshot as this store object last saved or read it: content, digests, and place in the log."""

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self.seq = 0
        self.root = ""
        self.tip: Tip | None = None
        self.after_damage = False
        """The end of the log is damaged: the next frame begins a new segment and stands alone."""
        self.refused: set[str] = set()
        """Ids of our frames that were never acknowledged. One may be in the log; nothing builds on it."""
        self.size_bytes = 0
        self.snapshot: SessionSnapshot | None = None
        self._rebase = True
        self._written = 0
        self._message_bytes = 0
        self._digests: list[bytes] = []
        self._sizes: list[int] = []
        self._chain: list[bytes] = []
        self._sections: dict[bytes, _Section] = {}

    @classmethod
    def anew(cls, keys: SessionKeys | None, tip: Tip | None) -> SessionWriter:
        """A writer without a base; it starts after the existing frames."""
        writer = cls(keys.digest if keys else plain_digest)
        writer.tip, writer.after_damage = tip, tip is not None
        return writer

    @classmethod
    def after(cls, found: FoundSnapshot, snapshot: SessionSnapshot, keys: SessionKeys | None) -> SessionWriter:
        """A writer that continues *found*. Behind damage, or an older version, it starts with a full frame."""
        writer = cls(keys.digest if keys else plain_digest)
        document, digest = found.document, writer._digest
        writer.seq, writer.root, writer.tip = found.header.hi, found.header.root, found.tip
        writer.size_bytes, writer.snapshot = found.size_bytes, snapshot
        writer.after_damage = bool(found.skipped)
        writer._rebase = writer.after_damage or document.version != CURRENT_VERSION
        writer._digests = [digest(line) for line in document.messages]
        writer._sizes = [len(line) for line in document.messages]
        writer._chain = chain_from(CHAIN_START, writer._digests, digest)
        writer._sections = {key: _Section(digest(line), len(line)) for key, line in document.sections.items()}
        writer._written, writer._message_bytes = found.written, sum(writer._sizes)
        return writer

    def step_to(self, snapshot: SessionSnapshot, *, full: bool = False) -> Delta:
        """Encode the change to *snapshot*; *full* encodes all of it.

        A full frame is also made where more than half of the written data would be dead.
        """
        full = full or self._rebase
        old = None if full else self.snapshot
        splice = splice_between(old.messages if old else (), snapshot.messages)
        lines = [message_line(message) for message in snapshot.messages[splice.at : splice.at + splice.insert]]
        sections, section_lines = self._changed_sections(old, snapshot)
        digests = [self._digest(line) for line in lines]
        start = self._chain[splice.at - 1] if splice.at else CHAIN_START
        after = splice.at + splice.delete
        kept_tail = [] if full else self._digests[after:]
        kept_bytes = 0 if full else self._message_bytes - sum(self._sizes[splice.at : after])
        chain = chain_from(start, digests + kept_tail, self._digest)
        sizes = [len(line) for line in lines]
        added = sum(sizes)
        changed = bool(lines or splice.delete or section_lines or self.snapshot is None)
        written = added + sum(map(len, section_lines))
        live = kept_bytes + added + sum([section.size for section in sections.values()])
        if changed and not full and self._written + written > 2 * live + _SLACK:
            return self.step_to(snapshot, full=True)
        return Delta(
            snapshot=snapshot,
            splice=splice,
            full=full,
            payload=b"\n".join([meta_line(snapshot), *section_lines, *lines, b""]),
            digests=digests,
            sizes=sizes,
            chain=chain,
            sections=sections,
            root=root_of(
                chain[-1] if chain else start, [section.digest for section in sections.values()], self._digest
            ),
            changed=changed,
            written=written,
            message_bytes=kept_bytes + added,
            live=live,
        )

    def _changed_sections(
        self, old: SessionSnapshot | None, new: SessionSnapshot
    ) -> tuple[dict[bytes, _Section], list[bytes]]:
        sections = dict(self._sections) if old else {}
        lines = []
        for path, value in _differences(old, new):
            key = path_key(path)
            if value is ABSENT:
                if sections.pop(key, None):
                    lines.append(removed(key))
                continue
            line = section_line(path, value)
            section = _Section(self._digest(line), len(line))
            if sections.get(key) != section:
                sections[key] = section
                lines.append(line)
        return sections, lines

    def accept(self, step: Delta, *, seq: int, frame_id: str, size_bytes: int) -> None:
        """Make *step*, which is durable now, the head. The cost depends on what changed."""
        at, delete, _ = step.splice
        if step.full:
            at, delete = 0, len(self._digests)
        self._message_bytes = step.message_bytes
        self._written = step.written if step.full else self._written + step.written
        self._digests[at : at + delete] = step.digests
        self._sizes[at : at + delete] = step.sizes
        self._chain[at:] = step.chain
        self._sections = step.sections
        self.snapshot, self.root, self._rebase = step.snapshot, step.root, False
        self.seq, self.tip, self.size_bytes = seq, Tip(seq, frame_id), size_bytes
        self.after_damage = False
        self.refused.clear()


def _differences(old: SessionSnapshot | None, new: SessionSnapshot) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The sections that are not the same objects as before: candidates, to be compared as bytes.

    A section at its default is absent, as in `Value.raw`.
    """
    before = old.__dict__ | (old.__pydantic_extra__ or {}) if old else {}
    after = new.__dict__ | (new.__pydantic_extra__ or {})
    changed = [name for name, value in after.items() if before.get(name, ABSENT) is not value]
    changed += [name for name in before if name not in after]
    for name in sorted(changed):
        if name in _ELSEWHERE:
            continue
        left, right = before.get(name, ABSENT), after.get(name, ABSENT)
        if name in GROUPS:
            yield from _entries(name, left, right)
        else:
            yield (name,), new.raw_field(name)


def _entries(group: str, left: Any, right: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    left, right = (side if isinstance(side, dict) else {} for side in (left, right))
    for key in sorted(left.keys() | right.keys()):
        if left.get(key, ABSENT) is not (value := right.get(key, ABSENT)):
            yield (group, key), value


class Loaded(NamedTuple):
    """A snapshot that was read, with everything needed to save the next one."""

    found: FoundSnapshot
    snapshot: SessionSnapshot

    def writer(self, keys: SessionKeys | None) -> SessionWriter:
        """A writer that continues here. It builds nothing on what follows damage."""
        return SessionWriter.after(self.found, self.snapshot, keys)


class Writers:
    """What one store object knows of the sessions it writes. Reading changes only a cache.

    **Base.** A save builds on the newer of two: where its value was loaded from, and this object's own last save of
    the session. With neither, it builds on nothing: the session must not exist.
    """

    def __init__(
        self, log: FrameLog, keys_of: Callable[[str], SessionKeys | None], place: Callable[[], str], *, limit: int
    ) -> None:
        self._log, self._keys_of, self._place, self._limit = log, keys_of, place, limit
        self._saved: Recent[Tip] = Recent(_TIPS)
        self.begin()

    def begin(self) -> None:
        """Reopen every session for its next save: initially, and in a forked child.

        There, a save of the parent may be under way, and its frame must not be taken for a failed one of ours.
        """
        self._writers: Recent[SessionWriter] = Recent(self._limit)
        self._read: Recent[Loaded] = Recent(_READ)

    def load(
        self, session_id: str, at: int | None = None, *, strict: bool = False, known: FoundSnapshot | None = None
    ) -> Loaded:
        """Read a snapshot, or take the *known* one; it remembers where it came from."""
        found = known or find(self._log, session_id, self._keys_of(session_id), at=at)
        if found.skipped and strict:
            raise error_of(found.skipped[0], f"session {session_id}")
        tip = found.tip if at is None else Tip(found.header.hi, found.header.id)
        origin = LoadedFrom(found.header.sid, tip.seq, tip.id, self._place())
        loaded = Loaded(found, with_origin(load_document(found.document.raw(found.header.sid)), origin))
        if at is None:
            self._read.put(session_id, loaded)
        return loaded

    def base(self, snapshot: SessionSnapshot, named: int | None = None) -> SessionWriter:
        """The writer that a save of *snapshot* continues.

        Raises:
            Conflict: the session is not at the number *named*; or, without one, not where the save builds on.
        """
        session_id = snapshot.session_id
        writer = self._writers.get(session_id)
        own, loaded = self._saved.get(session_id), self._loaded_from(snapshot)
        expected = loaded if own is None or (loaded and loaded.seq > own.seq) else own
        if writer is None or (named is None and writer.tip != expected) or named not in (None, writer.seq):
            is_at = expected.seq if expected else 0
            writer = self._opened(session_id, expected if named in (None, is_at) else None)
            if named is None and writer.tip != expected and (expected or writer.seq):
                raise overtaken(session_id, writer.tip)
            if named is not None and _is_another(writer.tip, own, loaded):
                self._saved.pop(session_id)
                raise overtaken(session_id, writer.tip)
        if named is not None and named not in (writer.seq, writer.tip.seq if writer.tip else 0):
            raise Conflict(
                f"session {session_id} is at snapshot {writer.seq}, not {named}",
                session_id=session_id, hint="load it again and make the change on top of it",
            )  # fmt: skip
        self._writers.put(session_id, writer)
        return writer

    def at_origin(self, snapshot: SessionSnapshot) -> SessionWriter | None:
        """The writer that continues the frame *snapshot* was loaded from, if that frame is the end of the log.

        Needed when this object's own last save is gone: the session was deleted and recreated, or reverted.
        """
        session_id, loaded = snapshot.session_id, self._loaded_from(snapshot)
        if loaded is None or self._log.tip(session_id) != loaded:
            return None
        writer = self._opened(session_id, loaded)
        if writer.tip != loaded:
            return None
        self._writers.put(session_id, writer)
        return writer

    def _loaded_from(self, snapshot: SessionSnapshot) -> Tip | None:
        origin = origin_of(snapshot)
        if origin is None or origin.session_id != snapshot.session_id:
            return None
        place = self._place()
        is_elsewhere = origin.store and place and origin.store != place
        return None if is_elsewhere else Tip(origin.seq, origin.id)

    def _opened(self, session_id: str, expected: Tip | None) -> SessionWriter:
        keys = self._keys_of(session_id)
        read = self._read.pop(session_id)
        if read and read.found.tip == expected:  # whether it still is the end is confirmed under the lock
            return read.writer(keys)
        tip = self._log.tip(session_id)  # first, so that a concurrent save is noticed
        try:
            found = find(self._log, session_id, keys)
            return Loaded(found, load_document(found.document.raw(found.header.sid))).writer(keys)
        except (SnapshotNotFound, Damaged) as error:
            if isinstance(error, SnapshotNotFound) and tip and tip.id:  # it was deleted while we looked
                raise overtaken(session_id, None) from error
            return SessionWriter.anew(keys, tip)

    def accepted(self, session_id: str, writer: SessionWriter) -> None:
        """Remember that our save is durable."""
        if writer.tip:
            self._saved.put(session_id, writer.tip)

    def saved(self, session_id: str) -> Tip | None:
        """The frame of this object's last save of the session, if it is remembered."""
        return self._saved.get(session_id)

    def drop(self, session_id: str) -> None:
        """Reopen the session for the next save: its log is not what this object wrote last.

        It may have been deleted and recreated, with the same number.
        """
        writer = self._writers.get(session_id)
        if writer and not writer.refused:  # which frames of ours were never acknowledged must not be forgotten
            self._writers.pop(session_id)

    def forget(self, session_id: str) -> None:
        """Forget that this object saved or read the session."""
        for memory in (self._writers, self._saved, self._read):
            memory.pop(session_id)


def _is_another(found: Tip | None, *known: Tip | None) -> bool:
    """Whether the log ends with a known number but an unknown id: the session was deleted and recreated."""
    return found is not None and found not in known and found.seq in [tip.seq for tip in known if tip]
