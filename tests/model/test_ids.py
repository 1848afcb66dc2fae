"""Session ids, and the directory names they turn into."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from snapshot_plugin import InvalidSessionId
from snapshot_plugin.model import check_session_id, new_id
from snapshot_plugin.model.ids import MAX_ID_BYTES, dirname_of, session_id_of, short_id
from tests.tries import tries

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


def directory(session_id: str) -> str | None:
    try:
        return dirname_of(session_id)
    except InvalidSessionId:
        return None


@pytest.mark.requirement("FORMAT-NAME-EMPTY", "FORMAT-NAME-DOTS", "FORMAT-NAME-CONTROL", "TERMINAL-SECURITY-IDS")
@pytest.mark.parametrize(
    "session_id",
    ["", ".", "..", "a\0b", "\0", "a\nb", "\x7f", "x" * 20_000, "é" * 9_000, "\ud83d", None, 7, b"x"],
)
def test_id_that_some_store_cannot_hold_is_refused(session_id: Any) -> None:
    with pytest.raises(InvalidSessionId):
        check_session_id(session_id)


@pytest.mark.requirement(
    "FORMAT-NAME-ENCODING",
    "FORMAT-NAME-DOT",
    "TERMINAL-SECURITY-TRAVERSAL",
    "ONERING-CARE-AGENT-ID",
)
@pytest.mark.parametrize(
    "session_id", ["a/b", "../../etc/passwd", "/", "a\\b", "🙂", "~", ".hidden", "a b", "%41", "ß"]
)
def test_unusual_ids_become_a_safe_name(session_id: str) -> None:
    name = dirname_of(session_id)

    assert re.fullmatch(r"[a-z0-9_%-][a-z0-9._%-]*", name)
    assert session_id_of(name) == session_id
    assert check_session_id(session_id) is session_id


def test_a_plain_id_is_its_own_name() -> None:
    assert dirname_of("01k9-fix_auth.2") == "01k9-fix_auth.2"


@pytest.mark.requirement("FORMAT-NAME-CASE")
def test_ids_differing_by_case_get_names_that_differ_on_every_disk() -> None:
    names = {dirname_of(session_id).casefold() for session_id in ("session", "Session", "SESSION", "sessioN")}

    assert len(names) == 4


def test_ids_that_look_alike_but_differ_in_unicode_stay_apart() -> None:
    composed, decomposed = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")

    assert dirname_of(composed) != dirname_of(decomposed)


@pytest.mark.requirement("FORMAT-NAME-LONG")
@pytest.mark.parametrize("session_id", ["x" * 201, "thread/" + "Ä" * 90, "." * 300, "A" * 5_000])
def test_long_id_gets_a_short_name_with_a_prefix_and_a_digest(session_id: str) -> None:
    name = dirname_of(session_id)

    assert len(dirname_of("x" * MAX_ID_BYTES)) == MAX_ID_BYTES
    assert len(name) <= MAX_ID_BYTES
    assert re.fullmatch(r"[a-z0-9_%-][a-z0-9._%-]*%7e[0-9a-f]{40}", name) or session_id.startswith(".")
    assert session_id_of(name) == short_id(session_id) == short_id(short_id(session_id))
    assert dirname_of(session_id + "y") != name


@pytest.mark.requirement("FORMAT-NAME-ENCODING")
@tries(100)
@given(IDS)
def test_name_maps_back_to_its_id(session_id: str) -> None:
    name = directory(session_id)
    assume(name is not None)

    assert name is not None
    assert session_id_of(name) == short_id(session_id)
    assert len(name.encode()) <= MAX_ID_BYTES
    assert not name.startswith(".")


@pytest.mark.requirement("FORMAT-NAME-CASE")
@tries(100)
@given(IDS, IDS | st.just(""))
def test_two_ids_never_share_a_name_even_casefolded(one: str, other: str) -> None:
    for twin in (other, one.upper(), one.lower(), one.swapcase(), one.replace("%", "%25")):
        names = directory(one), directory(twin)
        if None not in names and one != twin:
            assert str(names[0]).casefold() != str(names[1]).casefold()


@tries(100)
@given(st.text(max_size=20))
def test_name_that_no_id_produces_maps_to_nothing(name: str) -> None:
    session_id = session_id_of(name)

    assert session_id is None or dirname_of(session_id) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "A", "%41x%", "%2F", "%2f%", ".lock", "é", "%ff", "\udcff%20", "%61"]
)
def test_foreign_names_in_a_store_are_not_sessions(name: str) -> None:
    assert session_id_of(name) is None


def test_new_ids_are_lower_case_unique_and_valid_names() -> None:
    made = [new_id() for _ in range(100)]

    assert len(set(made)) == 100
    assert [dirname_of(each) for each in made] == made
