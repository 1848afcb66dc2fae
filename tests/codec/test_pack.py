"""Several snapshots in one frame: each comes out as it went in, and nothing in a pack is believed unchecked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest

from snapshot_plugin import SnapshotCorrupted, SnapshotTampered
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header, encode_frame, open_frame, open_meta
from snapshot_plugin.codec.keys import Keyset
from snapshot_plugin.codec.pack import Change, open_changes, packed, payload_size

KEYS = SessionKeys(Keyset.new(), store_id="store", session_id="session")
BOTH_KINDS = pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])


def root(number: int) -> str:
    return f"{number:064x}"


def snapshots(*numbers: int, size: int = 2000, full: Sequence[int] = (1,)) -> list[Change]:
    """Snapshots that follow each other; some stand alone."""
    return [
        (
            Header(
                v=2, id=f"id-{n}", sid="session", lo=n, hi=n, root=root(n), prev=root(n - 1), full=n in full,
                at=n, insert=1, t="2026-11-16T00:51:47.000001Z", w="w", trigger="turn", tags=("é",) * (n % 2),
            ),
            [b'{"meta":{"title":"%d"}}' % n, b'{"message":{"text":"%s"}}' % (b"%d " % n * (size // 2))],
        )
        for n in numbers
    ]  # fmt: skip


def opened(frames: Sequence[bytes], keys: SessionKeys | None) -> list[Change]:
    return [
        (header._replace(sum="", kid="", nonce=""), lines)
        for frame in frames
        for header, lines in open_changes(frame, session_id="session", keys=keys)
    ]


@pytest.mark.requirement("FORMAT-FRAME-PACK")
@BOTH_KINDS
@pytest.mark.parametrize("count", [1, 2, 9, 200])
def test_packed_snapshots_unpack_unchanged(keys: SessionKeys | None, count: int) -> None:
    given = snapshots(*range(1, count + 1))

    frames = packed(given, keys)

    assert opened(frames, keys) == given
    assert len(frames) <= 2 + count // 6


@pytest.mark.requirement("FORMAT-FRAME-PACK")
@BOTH_KINDS
def test_pack_header_is_the_newest_snapshots_with_the_oldest_base(
    keys: SessionKeys | None,
) -> None:
    [frame] = packed(snapshots(*range(1, 9)), keys, packs=1)

    header, summary = open_meta(frame, session_id="session", keys=keys)

    assert (header.lo, header.hi, header.pack, header.full, header.prev) == (1, 8, 8, True, root(0))
    assert (header.id, header.root, summary) == ("id-8", root(8), {"title": "8"})


def test_a_pack_is_json_lines_for_any_gzip() -> None:
    [frame] = packed(snapshots(*range(1, 9)), None, packs=1)

    kinds = [next(iter(json.loads(line))) for line in gzip.decompress(frame).splitlines()]

    assert kinds == ["meta", *["frame", "meta", "message"] * 8]


def test_full_snapshot_starts_a_pack() -> None:
    frames = packed(snapshots(*range(1, 21), full=(1, 7)), None, packs=1)

    headers = [open_frame(frame, session_id="session", keys=None)[0] for frame in frames]
    assert [(header.lo, header.hi, header.full) for header in headers] == [(1, 6, True), (7, 20, True)]


def test_small_groups_stay_unpacked() -> None:
    given = snapshots(1, 2, 3, size=100)

    assert [open_frame(frame, session_id="session", keys=None)[0].pack for frame in packed(given, None)] == [0] * 3


def test_packs_take_much_less_space() -> None:
    given = snapshots(*range(1, 65), size=1000)
    alone = sum(
        len(encode_frame(header, b"\n".join([*lines, b""]), None, effort="best")) for header, lines in given
    )

    assert 2 * sum(map(len, packed(given, None))) < alone


# Packs that somebody made by hand -----------------------------------------------------------------------------


def handmade(inside: Sequence[Change], keys: SessionKeys | None, **changes: Any) -> bytes:
    [frame] = packed(snapshots(*range(1, 9)), keys, packs=1)
    header, _ = open_frame(frame, session_id="session", keys=keys)
    lines = [b'{"meta":{}}']
    for each, content in inside:
        lines += [b'{"frame":' + each.to_bytes() + b"}", *content]
    return encode_frame(header._replace(**changes), b"\n".join([*lines, b""]), keys)


def with_change(at: int, **changes: Any) -> list[Change]:
    given = snapshots(*range(1, 9))
    given[at] = (given[at][0]._replace(**changes), given[at][1])
    return given


CONTRADICTIONS = {
    "one is missing": snapshots(*range(1, 8)),
    "none is there": [],
    "another beginning": with_change(0, lo=2, hi=2),
    "another past": with_change(0, prev=root(9)),
    "not full": with_change(0, full=False),
    "another end": with_change(7, hi=9),
    "another newest": with_change(7, id="other"),
    "another content": with_change(7, root=root(9)),
    "another session": with_change(3, sid="other"),
    "another version": with_change(3, v=3),
    "a gap": with_change(3, lo=5, hi=5),
    "a broken chain": with_change(3, prev=root(9)),
    "full in the middle": with_change(3, full=True),
}


@pytest.mark.requirement("FORMAT-FRAME-PACK")
@BOTH_KINDS
@pytest.mark.parametrize("inside", CONTRADICTIONS.values(), ids=list(CONTRADICTIONS))
def test_inconsistent_pack_is_refused(inside: list[Change], keys: SessionKeys | None) -> None:
    with pytest.raises(SnapshotCorrupted):
        open_changes(handmade(inside, keys), session_id="session", keys=keys)
    assert opened([handmade(snapshots(*range(1, 9)), keys)], keys)


@pytest.mark.parametrize("header", [b"", b"{", b"[]", b'{"lo":1}', b"\xff", b"null"])
def test_invalid_inner_header_is_damage(header: bytes) -> None:
    [frame] = packed(snapshots(*range(1, 9)), None, packs=1)
    outside, payload = open_frame(frame, session_id="session", keys=None)
    lines = payload.split(b"\n")
    lines[1] = b'{"frame":' + header + b"}"

    with pytest.raises(SnapshotCorrupted):
        open_changes(encode_frame(outside, b"\n".join(lines), None), session_id="session", keys=None)


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"meta":{}}\n{"message":{}}'])
def test_payload_must_end_with_a_newline(payload: bytes) -> None:
    header, _ = snapshots(1)[0]

    if payload:
        with pytest.raises(SnapshotCorrupted):
            open_changes(encode_frame(header, payload, None), session_id="session", keys=None)
    else:
        [(_, lines)] = open_changes(encode_frame(header, payload, None), session_id="session", keys=None)
        assert lines == []


def test_a_plain_pack_is_refused_in_an_encrypted_store() -> None:
    [frame] = packed(snapshots(*range(1, 9)), None, packs=1)

    with pytest.raises(SnapshotTampered):
        open_changes(frame, session_id="session", keys=KEYS)


def test_size_of_lines_is_the_payload_size() -> None:
    assert payload_size([]) == 0
    assert payload_size([b"ab", b""]) == len(b"ab\n\n")
