"""Snapshots as lines: sections known by their names, documents that follow their frames, and the root."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import SnapshotCorrupted
from snapshot_plugin.codec.document import (
    CHAIN_START,
    StoredDocument,
    chain_from,
    message_line,
    meta_line,
    parsed,
    plain_digest,
    removed,
    root_of,
    section_key,
    section_line,
)
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.testing import make_message, make_snapshot
from tests.tries import tries

HEADER = Header(v=2, id="01k", sid="session", lo=3, hi=4, root="ab" * 32, prev="cd" * 32)
names = st.text(st.sampled_from('],"value:\\{}é\ud83dx'), max_size=14)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), names),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)


@tries(300)
@given(st.lists(names, min_size=1, max_size=2), json_values, json_values)
def test_section_identity_depends_on_its_names_not_its_value(path: list[str], one: Any, other: Any) -> None:
    line = section_line(path, one)

    assert b"\n" not in line
    assert json.loads(line) == {"section": path, "value": one}
    assert section_key(line) == section_key(section_line(path, other)) == section_key(removed(section_key(line)))
    assert json.loads(removed(section_key(line))) == {"section": path}


@tries(200)
@given(st.lists(names, min_size=1, max_size=2), st.lists(names, min_size=1, max_size=2))
def test_different_names_make_different_sections(one: list[str], other: list[str]) -> None:
    keys = [section_key(section_line(path, None)) for path in (one, other)]

    assert (keys[0] == keys[1]) is (one == other)


def step(*lines: bytes, **changes: Any) -> tuple[Header, bytes]:
    return HEADER._replace(**changes), b"".join(line + b"\n" for line in lines)


def lines_of(*texts: str) -> Iterator[bytes]:
    return map(message_line, map(make_message, texts))


@pytest.mark.requirement("FORMAT-PAYLOAD-LINES", "FORMAT-PAYLOAD-GROUPS", "FORMAT-PAYLOAD-REMOVED")
def test_document_is_rebuilt_from_its_frames() -> None:
    meta = meta_line(make_snapshot())
    document = StoredDocument()
    document.apply(*step(meta, section_line(["title"], "t"), *lines_of("a", "b", "c"), full=True, insert=3))
    document.apply(*step(meta, section_line(["memory", "k"], 1), *lines_of("B"), at=1, delete=1, insert=1))
    branch = document.copy()
    document.apply(*step(meta, removed(section_key(section_line(["title"], ""))), at=2, delete=1))

    assert [entry["content"][0]["text"] for entry in document.raw("s")["messages"]] == ["a", "B"]
    assert (document.raw("s").get("title"), document.raw("s")["memory"]) == (None, {"k": 1})
    assert branch.raw("s")["title"] == "t"
    assert len(branch.messages) == 3
    document.apply(*step(meta, full=True))
    assert (document.sections, document.messages) == ({}, [])


@pytest.mark.requirement("FORMAT-ROOT-FORMULA")
def test_root_is_the_digest_chain_of_the_format_page() -> None:
    def d(data: bytes) -> bytes:
        return hashlib.sha256(data).digest()

    sections = [section_line(["b"], 1), section_line(["a"], 2)]
    messages = list(lines_of("x", "y"))
    document = StoredDocument()
    document.apply(*step(meta_line(make_snapshot()), *sections, *messages, full=True, insert=2))

    chain = d(d(bytes(32) + d(messages[0])) + d(messages[1]))
    state = d(b"".join(sorted(map(d, sections))))
    links = chain_from(CHAIN_START, map(plain_digest, document.messages), plain_digest)
    assert root_of(links[-1], map(plain_digest, document.sections.values()), plain_digest) == d(chain + state).hex()
    assert root_of(CHAIN_START, (), plain_digest) == d(bytes(32) + d(b"")).hex()


@pytest.mark.parametrize(
    ("payload", "changes"),
    [
        (b"", {}),
        (b"{}", {}),
        (b"{}\n", {"insert": 1}),
        (b"{}\n{}\n", {"insert": 2}),
        (b"{}\n", {"at": 1}),
        (b"{}\n", {"delete": 1}),
    ],
)
def test_change_that_does_not_fit_is_refused(payload: bytes, changes: dict[str, int]) -> None:
    header, _ = step(**changes)

    with pytest.raises(SnapshotCorrupted):
        StoredDocument().apply(header, payload)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"null", b'{"section":["a"],"value":1}', b'{"message":1'])
@pytest.mark.parametrize("ahead", [False, True], ids=["at the end", "ahead"])
def test_message_that_is_not_valid_json_is_damage(line: bytes, *, ahead: bool) -> None:
    document = StoredDocument(ahead=ahead)
    document.apply(*step(meta_line(make_snapshot()), line, full=True, insert=1))

    with pytest.raises(SnapshotCorrupted):
        document.raw("session")


@pytest.mark.parametrize("line", [b'{"section":[],"value":1}', b'{"section":["a"],"value":}', b'["a"],"value":1}'])
def test_section_that_is_not_valid_json_is_damage(line: bytes) -> None:
    document = StoredDocument()
    document.apply(*step(meta_line(make_snapshot()), line, full=True))

    with pytest.raises(SnapshotCorrupted):
        document.raw("session")


def test_an_integer_too_long_for_python_that_0_1_0_stored_is_read_as_its_digits() -> None:
    digits = "7" * 5000

    assert parsed(b'{"section":["metadata"],"value":{"big":' + digits.encode() + b',"small":-3}}') == {
        "section": ["metadata"],
        "value": {"big": digits, "small": -3},
    }
