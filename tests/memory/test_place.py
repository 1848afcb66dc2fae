"""Where a memory is, and what it never touches: other directories, links out of the project, files of others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import InvalidInput, NotFound, StoreUnavailable
from snapshot_plugin.memory import ProjectMemory, find_project, literal_project
from tests.memory.opening import Opener, opener


def repository(place: Path) -> Path:
    (place / ".git").mkdir(parents=True)
    (place / ".git/HEAD").write_text("ref: refs/heads/main")
    return place


def test_the_nearest_real_repository_is_the_project(tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer")
    inner = repository(outer / "inner")
    (inner / "src/.git").mkdir(parents=True)  # no HEAD: no repository
    assert find_project(inner / "src", home=tmp_path).directory == inner
    tree = outer / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {outer / '.git'}\n")
    assert find_project(tree, home=tmp_path).directory == tree
    (tree / ".git").write_text("gitdir: /nowhere\n")
    assert find_project(tree, home=tmp_path).directory == outer


def test_without_a_repository_the_working_directory_is_the_project(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    found = find_project(tmp_path / "work", home=tmp_path)
    assert (found.directory, found.why) == (tmp_path / "work", "the working directory")


def test_home_directory_and_filesystem_root_are_never_chosen_as_the_project(tmp_path: Path) -> None:
    home = repository(tmp_path / "home")
    (home / "work").mkdir()
    assert find_project(home / "work", home=home).directory == home / "work"
    for nowhere in (home, Path("/")):
        with pytest.raises(InvalidInput) as refused:
            find_project(nowhere, home=home)
        assert "--project" in (refused.value.hint or "")
    assert find_project(home, roots=[Path("/"), home, home / "work"], home=home).directory == home / "work"
    assert literal_project(home).directory == home, "what the user names is taken as it is"


def test_deleted_working_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(InvalidInput, match="is gone"):
        find_project()


def test_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    above = repository(tmp_path / "above")
    (above / ".asnap").mkdir()
    (above / ".asnap/meta.json").write_text('{"session_count": 1}')
    (above / "work").mkdir()
    assert find_project(above / "work", home=tmp_path).directory == above
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert find_project(above / "work", home=tmp_path).directory == above / "work"


# Links -------------------------------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory outside the project, with files that look like entries."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret.json").write_text('{"outside": true}')
    (place / "work.tmp").write_text("unfinished")
    return place


def untouched(outside: Path) -> bool:
    return {file.name for file in outside.iterdir()} == {"secret.json", "work.tmp"}


@pytest.mark.anyio
async def test_symlinked_namespace_is_reported_and_the_rest_works(
    open_memory: Opener, project: Path, outside: Path
) -> None:
    (project / ".asnap").mkdir(mode=0o700)
    (project / ".asnap/notes").symlink_to(outside)
    async with open_memory() as memory:
        await memory.save("decisions", "a", 1)
        assert "'notes' is not read: it is a link" in " ".join(memory.notices)
        assert await memory.namespaces() == {"decisions": ["a"]}
        with pytest.raises((NotFound, StoreUnavailable)):
            await memory.load("notes", "secret")
        with pytest.raises((NotFound, StoreUnavailable)):
            await memory.delete("notes", "secret")
        with pytest.raises(StoreUnavailable):
            await memory.save("notes", "secret", 2)
        await memory.save("decisions", "b", 1)
        assert memory.persistence == "disk"
        await memory.clear()
    assert untouched(outside)


@pytest.mark.anyio
@pytest.mark.parametrize("linked", [".asnap", ".asnap/.damaged"])
async def test_our_symlinked_directories_are_not_followed(
    open_memory: Opener, project: Path, outside: Path, linked: str
) -> None:
    (project / linked).parent.mkdir(exist_ok=True, mode=0o700)
    (project / linked).symlink_to(outside)
    async with open_memory() as memory:
        for key in ("a", "secret"):
            try:
                await memory.save("notes", key, 1)
            except StoreUnavailable as error:
                assert "link" in error.message  # noqa: PT017 — it may also be possible
        (project / ".asnap/errors").mkdir(exist_ok=True) if linked != ".asnap" else None
    assert untouched(outside)


@pytest.mark.anyio
@pytest.mark.parametrize("linked", [".lease", "meta.json", "notes/secret.json", ".gitignore"])
async def test_symlinked_files_are_neither_read_nor_written(
    open_memory: Opener, project: Path, outside: Path, linked: str
) -> None:
    file = project / ".asnap" / linked
    file.parent.mkdir(parents=True, mode=0o700)
    file.symlink_to(outside / "secret.json")
    async with open_memory() as memory:
        assert await memory.list("notes") == []
        try:
            await memory.save("other", "k", 1)
            await memory.delete("notes", "secret")
        except (StoreUnavailable, NotFound):
            pass
    assert json.loads((outside / "secret.json").read_text()) == {"outside": True}
    assert untouched(outside)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["link", "none", "plain", "fifo"])
async def test_users_gitignore_is_extended_only_if_it_is_a_regular_file(
    open_memory: Opener, project: Path, outside: Path, kind: str
) -> None:
    theirs = project / ".gitignore"
    if kind == "link":
        theirs.symlink_to(outside / "secret.json")
    elif kind == "plain":
        theirs.write_text("build\n")
    elif kind == "fifo":
        os.mkfifo(theirs)
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
    assert (project / ".asnap/.gitignore").read_text() == "*\n"
    assert json.loads((outside / "secret.json").read_text()) == {"outside": True}
    if kind == "plain":
        assert theirs.read_text() == "build\n.asnap/\n"
    assert theirs.exists() is (kind != "none")


@pytest.mark.anyio
async def test_files_of_another_user_are_not_read(
    open_memory: Opener, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    async with open_memory() as memory:
        await memory.save("notes", "theirs", 1)
        await memory.save("notes", "ours", 2)
        os.chown(project / ".asnap/notes/theirs.json", 12345, -1)
        assert await memory.list("notes") == ["ours"]
        assert "belongs to another user" in " ".join(memory.notices)
        with pytest.raises((NotFound, StoreUnavailable)):
            await memory.load("notes", "theirs")
    os.chown(project / ".asnap", 12345, -1)
    async with opener(project)() as memory:
        with pytest.raises(StoreUnavailable):
            await memory.save("notes", "k", 1)
        assert memory.persistence == "memory"


# Names written by hand ---------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_hand_named_entries_are_read_and_other_files_are_reported(open_memory: Opener, project: Path) -> None:
    notes = project / ".asnap/My Notes"
    notes.mkdir(parents=True, mode=0o700)
    (notes / "My Note.json").write_text('{"by": "hand"}')
    (notes / "todo.txt").write_text("not JSON")
    async with open_memory() as memory:
        assert await memory.namespaces() == {"My Notes": ["My Note"]}
        assert await memory.load("My Notes", "My Note") == {"by": "hand"}
        assert [notice for notice in memory.notices if "todo.txt" in notice]
        await memory.save("My Notes", "My Note", {"by": "agent"})
        assert json.loads((notes / "My Note.json").read_text()) == {"by": "agent"}, "in the file it has"
        await memory.delete("My Notes", "My Note")
        assert not (notes / "My Note.json").exists()


@pytest.mark.anyio
@pytest.mark.parametrize("data", [{"session_count": 7}, {"session_count": 7, "used": 3, "last_session": "never"}])
async def test_memory_of_version_0_1_0_is_continued(
    open_memory: Opener, project: Path, data: dict[str, Any]
) -> None:
    stored = project / ".asnap"
    stored.mkdir(mode=0o700)
    (stored / "meta.json").write_text(
        json.dumps({"project": "/old", "created_at": "2026-01-01T00:00:00.000000Z", **data})
    )
    (stored / ".lease.gate").touch()
    (stored / "errors").mkdir()
    old = {
        "fingerprint": "E",
        "first_seen": "2026-11-15T00:00:00.000000Z",
        "last_seen": "2026-11-15T00:00:00.000000Z",
    }
    (stored / "errors/history.json").write_text(json.dumps({"entries": [old]}))
    (stored / "errors/own-key.json").write_text(json.dumps({"message": "boom"}))
    async with open_memory() as memory:
        assert memory.session_count == 8
        known = {
            error.fingerprint: error.occurrences for error in (await memory.load_context()).error_history.unresolved
        }
        assert known == {"E": 1, "own-key": 1}


def test_python_api_can_name_the_project_exactly(tmp_path: Path) -> None:
    repository(tmp_path / "r")
    (tmp_path / "r/src").mkdir()
    assert ProjectMemory(tmp_path / "r/src", state=tmp_path).project == tmp_path / "r"
    assert ProjectMemory(literal_project(tmp_path / "r/src"), state=tmp_path).project == tmp_path / "r/src"
