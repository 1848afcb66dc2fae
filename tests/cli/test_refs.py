from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import FilesystemStore, InvalidInput, SnapshotMeta, SnapshotNotFound
from snapshot_plugin.operations.references import find, resolve, short_ids
from snapshot_plugin.testing import make_message, make_snapshot

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def meta(session_id: str, **more: Any) -> SnapshotMeta:
    return SnapshotMeta(session_id=session_id, seq=7, saved_at=NOW, **more)


METAS = (
    meta("01aaaa", title="fix auth", tags=("pre-deploy",)),
    meta("01bbbb", title="Docs", state="damaged"),
    meta("02cccc", snapshot_tags=("night",)),
    meta("latest~1", title="fix auth"),
)


@pytest.mark.parametrize(
    ("text", "session_id", "seq"),
    [
        ("01aaaa", "01aaaa", None),
        ("02", "02cccc", None),
        ("01BB", "01bbbb", None),
        ("Docs", "01bbbb", None),
        ("docs", "01bbbb", None),
        ("latest", "01aaaa", None),
        ("latest~2", "latest~1", None),
        ("tag:pre-deploy", "01aaaa", None),
        ("tag:night@3", "02cccc", 3),
        ("02c@5", "02cccc", 5),
        ("latest@5", "01aaaa", 5),
    ],
)
def test_reference_resolves_to_its_session(text: str, session_id: str, seq: int | None) -> None:
    target = resolve(text, METAS)

    assert (target.session_id, target.seq) == (session_id, seq)


def test_session_named_like_a_snapshot_is_found_unless_a_snapshot_matches() -> None:
    named = (*METAS, meta("03dddd", title="ping me@3"), meta("04eeee", title="02c@5"))

    found = resolve("ping me@3", named)
    assert (found.session_id, found.seq) == ("03dddd", None)
    found = resolve("02c@5", named)
    assert (found.session_id, found.seq) == ("02cccc", 5)
    with pytest.raises(SnapshotNotFound):
        resolve("ping you@3", named)


def test_full_id_after_id_takes_precedence_over_other_matches() -> None:
    assert resolve("latest~1", METAS).session_id == "02cccc"
    assert resolve("id:latest~1", METAS).session_id == "latest~1"


def test_full_id_that_reads_like_a_snapshot_takes_precedence_over_a_beginning() -> None:
    named = (*METAS, meta("order@7"), meta("order@71"))

    assert resolve("order@7", named) == (named[-2], None)
    assert resolve("order@7", (*named, meta("order"))) == (meta("order"), 7)


def test_latest_skips_damaged_sessions() -> None:
    assert resolve("latest", METAS[1:]).session_id == "02cccc"


@pytest.mark.parametrize("text", ["01", "fix auth"])
def test_ambiguous_reference_lists_its_matches(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve(text, METAS)

    assert "01aaaa" in caught.value.hint


@pytest.mark.parametrize(("text", "meant"), [("Dosc", "Docs"), ("02ccdc", "02cccc"), ("tag:nigth", "night")])
def test_a_typo_gets_a_suggestion(text: str, meant: str) -> None:
    with pytest.raises(SnapshotNotFound) as caught:
        resolve(text, METAS)

    assert meant in caught.value.hint


@pytest.mark.parametrize("text", ["", "zzz", "latest~9", "tag:", "@3"])
def test_unmatched_reference_is_not_found(text: str) -> None:
    with pytest.raises(SnapshotNotFound):
        resolve(text, METAS)


def test_short_ids_are_unique_prefixes_that_resolve() -> None:
    ids = ["01JD7AAAA1", "01JD7AAAA2", "01JD7AAAA", "02", "01JD8BBBBBB"]
    short = short_ids(ids)

    metas = [meta(name) for name in ids]
    assert {name: resolve(text, metas).session_id for name, text in short.items()} == {name: name for name in ids}
    assert short["01JD8BBBBBB"] == "01JD8B"


def test_working_memory_is_addressed_only_by_its_full_id() -> None:
    metas = (meta("01aaaa+memory", tags=("x",)), meta("01aaaa", tags=("x",)))

    for text in ("01a", "latest", "tag:x", "01aaaa"):
        assert resolve(text, metas).session_id == "01aaaa"
    assert resolve("01aaaa+memory", metas).session_id == "01aaaa+memory"
    assert resolve("01aaaa+memory@3", metas).session_id == "01aaaa+memory"


def test_a_tag_of_an_earlier_snapshot_is_found_with_its_number(tmp_path: Path) -> None:
    with FilesystemStore(tmp_path, background=False).sync as sync:
        session = make_snapshot("one", session_id="tagged")
        sync.save(session, tags=["pre-deploy"])
        sync.save(session.append(make_message("two")))
        sync.save(make_snapshot("another", session_id="other"))
    store = FilesystemStore(tmp_path, background=False)
    found = anyio.run(find, store, "tag:pre-deploy")
    assert (found.session_id, found.seq) == ("tagged", 1)
    with pytest.raises(SnapshotNotFound):
        anyio.run(find, store, "tag:unknown")
