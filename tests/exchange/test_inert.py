from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin.inert import plain, readable_json
from tests.tries import tries

UNSAFE = {*map(chr, range(32)), *map(chr, range(127, 160)), *"\u061c\u200e\u200f\u202a\u202e\u2066\u2069"}


@given(st.text())
def test_terminal_control_characters_are_removed(text: str) -> None:
    assert not UNSAFE & set(plain(text))
    assert UNSAFE & set(plain(text, lines=True)) <= {"\n", "\t"}
    assert not UNSAFE & set(readable_json(text, indent=None))


@given(st.text(alphabet=st.characters(codec="utf-8", categories=("L", "N", "P", "S", "M"))))
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert plain(text) == text


@tries(30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_escaped_json_parses_to_the_same_value(value: object) -> None:
    assert json.loads(readable_json(value)) == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "ab"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("one\r\ntwo\tthree", "one two three"),
        ("über\u202e\x00", "über"),
        ("\ud83d", ""),
    ],
)
def test_escape_sequences_are_removed_with_their_arguments(text: str, shown: str) -> None:
    assert plain(text) == shown
