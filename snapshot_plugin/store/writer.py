"""What a store remembers of a session it writes, so that the next save costs only what changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

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
from snapshot_plugin.model.snapshot import CURRENT_VERSION, SessionSnapshot
from snapshot_plugin.model.splice import Splice, splice_between
from snapshot_plugin.model.value import ABSENT
from snapshot_plugin.store.log import Tip

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys
    from snapshot_plugin.store.reader import Found

__all__ = ["SessionWriter", "Step"]

_ELSEWHERE = {"messages", "version", "session_id", "updated_at"}
_SLACK = 64 * 1024


class _Section(NamedTuple):
    digest: bytes
    size: int


class Step(NamedTuple):
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
    """How many bytes the snapshot has once the step is taken; the rest of what was written is dead."""


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
        """A writer with nothing to continue; it starts behind whatever is there."""
        writer = cls(keys.digest if keys else plain_digest)
        writer.tip, writer.after_damage = tip, tip is not None
        return writer

    @classmethod
    def after(cls, found: Found, snapshot: SessionSnapshot, keys: SessionKeys | None) -> SessionWriter:
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

    def step_to(self, snapshot: SessionSnapshot) -> Step:
        """Encode the change to *snapshot*. When more than half of what was written is dead, write all again."""
        step = self._step(snapshot, full=self._rebase)
        if step.changed and not step.full and self._written + step.written > 2 * step.live + _SLACK:
            return self._step(snapshot, full=True)
        return step

    def _step(self, snapshot: SessionSnapshot, *, full: bool) -> Step:
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
        link = chain[-1] if chain else start
        sizes = [len(line) for line in lines]
        added = sum(sizes)
        return Step(
            snapshot=snapshot,
            splice=splice,
            full=full,
            payload=b"\n".join([meta_line(snapshot), *section_lines, *lines, b""]),
            digests=digests,
            sizes=sizes,
            chain=chain,
            sections=sections,
            root=root_of(link, [section.digest for section in sections.values()], self._digest),
            changed=bool(lines or splice.delete or section_lines or self.snapshot is None),
            written=added + sum(map(len, section_lines)),
            message_bytes=kept_bytes + added,
            live=kept_bytes + added + sum([section.size for section in sections.values()]),
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

    def accept(self, step: Step, *, seq: int, frame_id: str, size_bytes: int) -> None:
        """The step is durable: it is the head now. Costs what changed."""
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
    before, after = _fields(old), _fields(new)
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


def _fields(snapshot: SessionSnapshot | None) -> dict[str, Any]:
    if snapshot is None:
        return {}
    extra = snapshot.__pydantic_extra__
    return {**snapshot.__dict__, **extra} if extra else snapshot.__dict__
