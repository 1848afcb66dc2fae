"""How the golden stores were written. Run it for a new format or schema version, never again for an old one::

    python tests/golden/write_store.py tests/golden/store/<name>

Ids and nonces differ from run to run, so a golden store cannot be made again; it is kept.

``format-1`` is from before there were packs. ``format-1-packs`` was written with ``codec.pack._WORTH = 0``, so that
even these few snapshots are packed.
"""

from __future__ import annotations

import base64
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio

from snapshot_plugin import FilesystemStore, RetentionPolicy, SessionSnapshot, SnapshotMeta
from snapshot_plugin.codec.document import (
    CHAIN_START,
    GROUPS,
    StoredDocument,
    chain_from,
    plain_digest,
    root_of,
    section_line,
)
from snapshot_plugin.codec.frame import Header, encode_frame
from snapshot_plugin.codec.sources import KeyFile, KeySource
from snapshot_plugin.model import new_id
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.testing import FixedClock, make_snapshot

KEY = "asnap-key-" + base64.urlsafe_b64encode(b"golden store; this is no secret!").decode().rstrip("=")
DOCUMENTS = Path(__file__).parent / "documents"
LIVED, OLD, GROWN = "Everyday Session/ä", "written-by-version-1", "written-by-version-1-and-later"


Saved = dict[int, SessionSnapshot]


async def live(store: FilesystemStore, clock: FixedClock) -> Saved:
    """Appends, edits, truncations, a summary; sections that come and go; forgetting and compressing."""
    texts: list[str] = []
    saved: Saved = {}
    for number in range(1, 15):
        clock.advance(timedelta(minutes=7))
        texts.append(f"message {number} 🦉\n" + ("cut off \ud83d" if number == 3 else ""))
        if number == 5:
            texts[1] = "edited"
        if number == 8:
            texts[:4] = ["summary"]
        if number == 10:
            del texts[3:]
        snapshot = make_snapshot(
            *texts,
            session_id=LIVED,
            title=f"turn {number}" if number % 4 else None,
            memory={"é": "\ud83d" if number % 3 == 0 else number, "same": [1, 1.0, True, None, 2**70, 1e-7]},
            plugins={f"plugin-{number % 3}": {"turn": number}},
            **({"from_the_future": {"turn": number}} if number % 2 else {}),
        )
        ref = await store.save(snapshot, trigger="interval", tags=["milestone"] if number % 5 == 0 else ())
        saved[ref.seq] = snapshot
        if number == 7:
            await store.forget(LIVED, RetentionPolicy(keep_last=2, keep_tags=("milestone",)))
        if number == 9:
            await store.compact(LIVED)
        if number == 11 and store.session_keys(LIVED):
            await store.rotate_key()
    return saved


def version_1_frames(store: FilesystemStore, session_id: str, clock: FixedClock) -> list[bytes]:
    """The session of documents/orbit-refactor as frames of version 1: the first half, then the rest."""
    raw: dict[str, Any] = json.loads((DOCUMENTS / "orbit-refactor" / "v1.json").read_text("utf-8"))
    keys, frames, prev = store.session_keys(session_id), [], ""
    document, lines = StoredDocument(), [json.dumps({"message": message}).encode() for message in raw["messages"]]
    sections = [line for name, value in raw.items() for line in section_lines(name, value)]
    half = len(lines) // 2
    for seq, (state, said) in enumerate(((sections, lines[:half]), ([], lines[half:])), start=1):
        meta = {
            **{name: raw[name] for name in ("created_at", "updated_at")},
            "messages": half if seq == 1 else len(lines),
        }
        payload = b"".join(line + b"\n" for line in (json.dumps({"meta": meta}).encode(), *state, *said))
        header = Header(
            v=1, id=new_id(), sid=session_id, lo=seq, hi=seq, root="", prev=prev, full=seq == 1,
            at=len(document.messages), insert=len(said), t=rfc3339(clock()), w=new_id(),
        )  # fmt: skip
        document.apply(header, payload)
        digest = keys.digest if keys else plain_digest
        chain = chain_from(CHAIN_START, map(digest, document.messages), digest)
        prev = root_of(chain[-1] if chain else CHAIN_START, map(digest, document.sections.values()), digest)
        frames.append(encode_frame(header._replace(root=prev), payload, keys))
    return frames


def section_lines(name: str, value: Any) -> list[bytes]:
    if name in ("messages", "version", "session_id", "updated_at"):
        return []
    if name in GROUPS:
        return [section_line([name, key], entry) for key, entry in value.items()]
    return [section_line([name], value)]


def migrated(session_id: str) -> Saved:
    """What the frames of version 1 hold, as the golden documents have it: not as this code reads it."""
    raw = json.loads((DOCUMENTS / "orbit-refactor" / "v2.json").read_text("utf-8"))
    whole = SessionSnapshot.model_validate({**raw, "session_id": session_id})
    return {1: whole.evolve(messages=whole.messages[: len(whole.messages) // 2]), 2: whole}


async def write(place: Path, key: KeySource | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write a store; return what was saved and is kept, and the roots it got."""
    clock = FixedClock()
    async with FilesystemStore(place, key=key, clock=clock, segment_frames=4, background=False) as store:
        await store.save(make_snapshot("deleted, and not yet purged", session_id="deleted"))
        await store.delete("deleted")
        saved = {OLD: migrated(OLD), GROWN: migrated(GROWN)}
        for session_id in saved:
            directory = store.session_dir(session_id)
            (directory / "0000000001.snap.gz").write_bytes(b"".join(version_1_frames(store, session_id, clock)))
        newest = saved[GROWN][2]
        for seq, snapshot in ((3, newest), (4, newest.evolve(title="saved by a later release"))):
            await store.save(snapshot, base=seq - 1)
            saved[GROWN][seq] = snapshot
        saved[LIVED] = await live(store, clock)
        histories = {session_id: await store.history(session_id) for session_id in saved}
    content = {
        session_id: {meta.seq: _shown(meta, saved[session_id][meta.seq]) for meta in metas}
        for session_id, metas in histories.items()
    }
    roots = {session_id: {meta.seq: meta.root for meta in metas} for session_id, metas in histories.items()}
    return content, roots


def _shown(meta: SnapshotMeta, snapshot: SessionSnapshot) -> dict[str, Any]:
    return {
        "saved_at": rfc3339(meta.saved_at), "trigger": meta.trigger, "tags": list(meta.snapshot_tags),
        "document": {"version": snapshot.version, **snapshot.raw()},
    }  # fmt: skip


def main(target: Path) -> None:
    """Write a plain and an encrypted store of the same content, and beside them what they must give."""
    target.mkdir(parents=True)
    key_file = target / "key.txt"
    key_file.write_text(KEY + "\n")
    key_file.chmod(0o600)
    plain, plain_roots = anyio.run(write, target / "plain", None)
    encrypted, encrypted_roots = anyio.run(write, target / "encrypted", KeyFile(key_file))
    if plain != encrypted:
        raise SystemExit("the two stores differ")
    for leftover in (*target.rglob(".lock"), *target.rglob(".create")):
        leftover.unlink()
    expected = {"sessions": plain, "roots": {"plain": plain_roots, "encrypted": encrypted_roots}}
    (target / "expected.json").write_text(json.dumps(expected, sort_keys=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
