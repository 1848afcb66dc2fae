"""Foreign documents are known by their shape; a version they carry is theirs."""

from __future__ import annotations

from typing import Any

import pytest

from snapshot_plugin import InvalidSnapshot, InvalidSnapshotVersion
from snapshot_plugin.exchange.foreign import as_document, load_dump, shape_of
from snapshot_plugin.migrate import load_document
from snapshot_plugin.migrate import migrate as migrate_document

Raw = dict[str, Any]


def migrate(raw: Any) -> Any:
    """A document, or another tool's dump, at the current version."""
    return migrate_document(as_document(raw))


def openagent(**changes: Any) -> Raw:
    about = {"session_id": "oa", "created_at": "2026-01-01T00:00:00", "updated_at": "2026-01-01T00:00:00"}
    return {"metadata": about, "messages": [], **changes}


def oneringai(**changes: Any) -> Raw:
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastActiveAt": "2026-01-01T00:00:00Z"}
    context = {"version": 1, "core": {"history": [], "toolCalls": []}}
    return {"version": 1, "agentId": "or", **times, "context": context, "plugins": {}, "metadata": {}, **changes}


def test_version_inside_a_foreign_document_is_not_read_as_ours() -> None:
    assert as_document(oneringai())["version"] == 1
    assert load_dump(oneringai()).session_id == "or"


def test_dump_is_imported_and_not_mistaken_for_a_stored_document() -> None:
    for dump in (openagent(), oneringai()):
        with pytest.raises(InvalidSnapshot):
            load_document(dump)


@pytest.mark.requirement("ONERING-MIGRATE-V0")
def test_foreign_document_without_a_version_is_recognised() -> None:
    raw = oneringai()
    del raw["version"], raw["context"]["version"]

    assert load_dump(raw).provider_type == "oneringai"


@pytest.mark.requirement("STORE-MIGRATE-FOREIGN", "TERMINAL-FILE-SESSION")
def test_openagent_session_is_recognised_with_or_without_an_explicit_zero() -> None:
    assert (
        shape_of(openagent()) == shape_of(openagent(version=0)) == shape_of(openagent(version=None)) == "openagent"
    )
    assert "openagent" not in migrate(openagent(version=0))["metadata"]


def test_document_with_our_session_id_is_ours() -> None:
    assert shape_of({**openagent(), "session_id": "x"}) is None
    assert shape_of({**oneringai(), "session_id": "x"}) is None


def test_versioned_document_is_not_read_as_an_unversioned_dump() -> None:
    with pytest.raises(InvalidSnapshotVersion):
        migrate(openagent(version=99))


@pytest.mark.requirement("ONERING-MIGRATE-UNKNOWN")
@pytest.mark.parametrize(
    "raw",
    [oneringai(version=2), oneringai(version="1"), oneringai(context={"version": 2, "core": {"conversation": []}})],
    ids=["newer", "not a number", "newer context"],
)
def test_unknown_foreign_version_is_refused(raw: Raw) -> None:
    with pytest.raises(InvalidSnapshotVersion) as caught:
        as_document(raw)

    assert caught.value.session_id == "or"


@pytest.mark.requirement("TERMINAL-FILE-INDEX")
@pytest.mark.parametrize(
    "raw",
    [
        {"version": "1.0", "sessions": [{"session_id": "a"}]},
        {"version": 1, "entries": [{"key": "k", "value": 1}], "stats": {}},
    ],
    ids=["index.json", "memory.json"],
)
def test_companion_files_of_a_session_are_refused_with_a_hint(raw: Raw) -> None:
    with pytest.raises(InvalidSnapshot) as caught:
        migrate(raw)

    assert caught.value.hint


@pytest.mark.parametrize(
    "raw",
    [
        {"metadata": {"session_id": 5}, "messages": []},
        {"metadata": {"session_id": "a"}, "messages": "none"},
        {"metadata": "a", "messages": []},
        {"agentId": "a", "context": {}},
        {"agentId": "a", "context": []},
        {"agentId": 1, "context": {"core": {}}},
    ],
)
def test_lookalike_of_a_foreign_session_is_refused(raw: Raw) -> None:
    with pytest.raises(InvalidSnapshot):
        migrate(raw)
