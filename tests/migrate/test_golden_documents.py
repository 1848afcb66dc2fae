"""Golden documents: one folder per session, ``v<N>.json`` is the same session as version N wrote or gets it.

A golden file is never edited: documents of every released version load for ever. A new version appends a
``v<N+1>.json`` to each folder, and its line to the manifest.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin.exchange.foreign import as_document, load_dump
from snapshot_plugin.migrate import Chain, migrate
from snapshot_plugin.migrate.documents import STEPS
from snapshot_plugin.model import CURRENT_VERSION, SessionSnapshot

GOLDEN = Path(__file__).parent.parent / "golden"
MANIFEST = GOLDEN / "MANIFEST.sha256"
DOCUMENTS = sorted((GOLDEN / "documents").glob("*/v*.json"))
SESSIONS = sorted({path.parent for path in DOCUMENTS})


def version_in_name(path: Path) -> int:
    return int(path.stem.removeprefix("v"))


def read(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text("utf-8"))
    assert isinstance(document, dict)
    return document


def pinned() -> dict[str, str]:
    lines = MANIFEST.read_text("utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def name_of(path: Path) -> str:
    return path.relative_to(GOLDEN / "documents").as_posix()


STRETCHES = [
    pytest.param(old, new, id=f"{name_of(old)} to {new.stem}")
    for old in DOCUMENTS
    for new in DOCUMENTS
    if old.parent == new.parent and version_in_name(old) < version_in_name(new)
]


@pytest.mark.requirement(
    "STORE-MIGRATE-FOREIGN",
    "ORBIT-MIGRATE-OLD",
    "ONERING-MIGRATE-V1",
    "TERMINAL-FILE-SESSION",
    "TERMINAL-FILE-TOOL-CALL",
    "TERMINAL-FILE-OPTIONAL",
    "ONERING-STATE-MEMORY-VERSION",
    "ONERING-FILE-MEMORY-ENTRY",
    "ONERING-FILE-CONTEXT-PLUGINS",
)
@pytest.mark.parametrize(("old", "new"), STRETCHES)
def test_a_golden_document_migrates_to_exactly_the_expected_one(old: Path, new: Path) -> None:
    target = version_in_name(new)

    steps = [step for step in STEPS if step.from_version < target]
    assert Chain(steps, current=target).migrate(as_document(read(old))) == read(new)


@pytest.mark.requirement("STORE-MIGRATE-GOLDEN", "ORBIT-TEST-VERSIONS")
@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_a_golden_document_of_any_version_loads_as_the_same_snapshot(path: Path) -> None:
    snapshot = load_dump(read(path))

    assert snapshot.version == CURRENT_VERSION
    assert snapshot == SessionSnapshot.model_validate(read(path.parent / f"v{CURRENT_VERSION}.json"))


@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.name)
def test_every_golden_session_has_its_current_version(session: Path) -> None:
    current = read(session / f"v{CURRENT_VERSION}.json")

    assert migrate(current) == current
    assert current["version"] == CURRENT_VERSION


@pytest.mark.parametrize("version", range(CURRENT_VERSION + 1))
def test_every_version_has_two_golden_sessions_that_begin_with_it(version: int) -> None:
    oldest = [min(session.glob("v*.json"), key=version_in_name) for session in SESSIONS]

    assert [version_in_name(path) for path in oldest].count(version) >= 2


@pytest.mark.requirement("STORE-MIGRATE-GOLDEN")
def test_every_golden_file_exists_unchanged() -> None:
    found = {name: hashlib.sha256((GOLDEN / name).read_bytes()).hexdigest() for name in pinned()}

    assert found == pinned()


def test_every_golden_document_is_pinned() -> None:
    assert {path.relative_to(GOLDEN).as_posix() for path in DOCUMENTS} <= set(pinned())


def test_no_golden_current_document_carries_an_environment_value_or_a_server_secret() -> None:
    texts = [path.read_text("utf-8") for path in DOCUMENTS if version_in_name(path) >= 2]

    assert not [text for text in texts if "hidden" in text or "not for the record" in text]
