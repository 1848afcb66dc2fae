"""What goes wrong around a memory: damage, limits, hands on the files, other writers."""

from __future__ import annotations

import errno
import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import (
    InvalidInput,
    LimitExceeded,
    MemoryReadOnly,
    NotFound,
    SnapshotCorrupted,
    StoreUnavailable,
)
from snapshot_plugin.memory import Baseline, MemoryLimits, NoiseRule, ProjectMemory, engine, files
from snapshot_plugin.system.files import locked, write_all
from snapshot_plugin.testing import FixedClock
from tests.memory.opening import Opener, names_in, opener, stored_text
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("GASOLINE-EDGE-NOT-READY")
async def test_unopened_memory_is_refused(open_memory: Opener) -> None:
    memory = open_memory()
    with pytest.raises(StoreUnavailable):
        await memory.load_context()
    async with memory:
        pass
    with pytest.raises(StoreUnavailable):
        await memory.save("a", "k", 1)


# Damage ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("GASOLINE-EDGE-CORRUPTED", "GASOLINE-P-EDGE-CORRUPTED")
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000])
async def test_damaged_entry_is_reported_and_quarantined(
    open_memory: Opener, project: Path, content: bytes
) -> None:
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
        await memory.save("a", "whole", 7)
        (project / ".asnap/a/k.json").write_bytes(content)
        with pytest.raises(SnapshotCorrupted):
            await memory.load("a", "k")
        assert await memory.load("a", "whole") == 7
        with pytest.raises(NotFound):
            await memory.load("a", "k")
        assert (project / ".asnap/.damaged/a.k.json").read_bytes() == content
        assert len((await memory.load_context()).notices) == 1
        await memory.save("a", "k", 2)
        assert await memory.load("a", "k") == 2


async def test_damaged_file_that_a_person_named_is_quarantined(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
        (project / ".asnap/a/My Note.json").write_text("{broken")
        with pytest.raises(SnapshotCorrupted):
            await memory.load("a", "My Note")
        assert (project / ".asnap/.damaged/a.My Note.json").read_text() == "{broken"
        assert await memory.namespaces() == {"a": ["k"]}


async def test_unreadable_directory_is_never_taken_for_an_empty_memory(
    open_memory: Opener, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_memory: files.MemoryFiles) -> files.Scan:
        raise StoreUnavailable("looking through .asnap failed")

    async with open_memory() as memory:
        await memory.record_error("before")
        await memory.flush()
        with monkeypatch.context() as disk:
            disk.setattr(files.MemoryFiles, "scan", unreadable)
            with pytest.raises(StoreUnavailable):
                await memory.save("errors", "history", {"fingerprint": "after"})
        await memory.flush()
        errors = (await memory.load_context()).error_history.unresolved
        assert {error.fingerprint for error in errors} == {"before", "after"}


@pytest.mark.requirement("GASOLINE-EDGE-CORRUPTED")
async def test_damaged_document_is_quarantined_and_restarted(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.record_error("before")
    (project / ".asnap/errors/history.json").write_text("{broken")
    async with open_memory() as memory:
        assert len(memory.notices) == 1
        await memory.record_error("after")
        context = await memory.load_context()
        assert [error.fingerprint for error in context.error_history.unresolved] == ["after"]
    assert (project / ".asnap/.damaged/errors.history.json").read_text() == "{broken"


@pytest.mark.parametrize("content", ["{", "[]", '{"session_count": "many"}'])
async def test_damaged_notes_are_quarantined(open_memory: Opener, project: Path, content: str) -> None:
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
    (project / ".asnap/meta.json").write_text(content)
    async with open_memory() as memory:
        context = await memory.load_context()
        assert (context.session_count, len(context.notices)) == (1, 1)
        assert await memory.load("a", "k") == 1
    assert (project / ".asnap/.damaged/meta.json").read_text() == content


@pytest.mark.parametrize(
    "written", [42, "text", {"entries": 7}, {"entries": [3, {"no": "name"}, {"fingerprint": "E"}]}]
)
async def test_adding_to_a_document_of_another_shape_loses_nothing(
    open_memory: Opener, project: Path, written: Any
) -> None:
    async with open_memory() as memory:
        file = project / ".asnap/errors/history.json"
        file.parent.mkdir(mode=0o700)
        file.write_text(json.dumps(written))
        assert await memory.load("errors", "history") == written
        await memory.record_error("new")
        await memory.flush()
        document = await memory.load("errors", "history")
        names = [entry["fingerprint"] for entry in document["entries"]]
        assert names[-1] == "new"
        if isinstance(written, dict) and isinstance(written["entries"], list):
            assert (names, document["other"]) == (["E", "new"], [3, {"no": "name"}])


async def test_leftovers_of_a_crash_are_removed(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
    leftovers = [project / ".asnap/meta.json.77.tmp", project / ".asnap/a/k.json.77.tmp"]
    for leftover in leftovers:
        leftover.write_text("half")
    async with open_memory() as memory:
        assert list(await memory.list("a")) == ["k"]
    assert not any(leftover.exists() for leftover in leftovers)


async def test_writer_that_keeps_the_lock_makes_others_read_only_until_it_lets_go(
    open_memory: Opener, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_TIMEOUT", 0.01)
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
    unfinished = project / ".asnap/a/k.json.77.tmp"
    memory = open_memory()
    with locked(project / ".asnap/.lease", session_id="", timeout=1):
        unfinished.write_text("half")
        await memory.__aenter__()
        with pytest.raises(MemoryReadOnly):
            await memory.save("a", "k", 2)
        await memory.record_error("collected")
        with pytest.raises(MemoryReadOnly):
            await memory.flush()
        assert await memory.load("a", "k") == 2, "what was kept can be read"
        assert (memory.session_count, memory.persistence, "read-only" in memory.notices[0]) == (
            2,
            "read-only",
            True,
        )
        assert json.loads((project / ".asnap/a/k.json").read_text()) == 1
        assert unfinished.exists(), "only the holder of the lock removes temporary files"
    await memory.flush()
    assert (memory.persistence, memory.notices) == ("disk", ())
    assert json.loads((project / ".asnap/a/k.json").read_text()) == 2
    assert not unfinished.exists()
    await memory.aclose()
    async with open_memory() as memory:
        assert memory.session_count == 3
        assert await memory.list("errors") == ["collected"]


# Hands on the files ------------------------------------------------------------------------------------------


@pytest.mark.requirement("GASOLINE-PLACE-BY-HAND")
async def test_files_may_be_edited_and_deleted_by_hand(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
        await memory.save("a", "gone", 1)
        (project / ".asnap/a/k.json").write_text('{"by": "hand"}')
        (project / ".asnap/a/gone.json").unlink()
        (project / ".asnap/b").mkdir()
        (project / ".asnap/b/new.json").write_text("3")
        assert await memory.load("a", "k") == {"by": "hand"}
        assert await memory.namespaces() == {"a": ["k"], "b": ["new"]}


@pytest.mark.parametrize(
    "edit",
    [
        {"occurrences": "3"}, {"occurrences": -1}, {"last_seen": "2100-01-20"}, {"resolved_at": True},
        {"first_seen": "2026-13-45T00:00:00.000000Z"}, {"first_session": "one"}, {"message": 7}, {"line": 1.5},
    ],
)  # fmt: skip
async def test_stored_error_may_be_edited_by_hand(
    open_memory: Opener, project: Path, clock: FixedClock, edit: dict[str, Any]
) -> None:
    async with open_memory() as memory:
        await memory.record_error("E", message="boom")
    file = project / ".asnap/errors/history.json"
    [entry] = json.loads(file.read_text())["entries"]
    file.write_text(json.dumps({"entries": [entry | edit]}))
    async with open_memory() as memory:
        known = (await memory.load_context()).error_history
        assert len(known.unresolved + known.resolved_recently) == 1
        clock.advance(timedelta(minutes=1))
        await memory.record_error("E")
        [error] = (await memory.load_context()).error_history.unresolved
        assert error.occurrences == (4 if edit == {"occurrences": "3"} else 2)


async def test_directory_removed_during_a_session_is_recreated(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
        shutil.rmtree(project / ".asnap")
        await memory.save("a", "again", 2)
        async with open_memory() as second:
            await second.save("a", "more", 3)
        assert await memory.namespaces() == {"a": ["again", "more"]}
    assert json.loads((project / ".asnap/meta.json").read_text())["session_count"] == 2


@pytest.mark.parametrize("where", [".asnap", ".asnap/a"])
async def test_symlinks_are_not_followed(open_memory: Opener, project: Path, tmp_path: Path, where: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / where).parent.mkdir(exist_ok=True)
    (project / where).symlink_to(outside)
    async with open_memory() as memory:
        with pytest.raises(StoreUnavailable):
            await memory.save("a", "k", 1)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("where", [".damaged", "noise"])
async def test_linked_directory_is_left_alone_and_blocks_nothing_else(
    open_memory: Opener, project: Path, tmp_path: Path, where: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.json").write_text('["boom"]')
    (project / ".asnap").mkdir()
    (project / ".asnap" / where).symlink_to(outside)
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
        await memory.record_error("boom")
        assert [error.fingerprint for error in (await memory.load_context()).error_history.unresolved] == ["boom"]
        assert memory.persistence == "disk"
        assert [notice for notice in memory.notices if "link" in notice]
        await memory.clear()
        assert await memory.namespaces() == {}
    assert names_in(outside) == {"config.json"}


async def test_notes_that_are_a_directory_are_reported_and_nothing_is_counted_twice(
    open_memory: Opener, project: Path
) -> None:
    (project / ".asnap/meta.json").mkdir(parents=True)
    async with open_memory() as memory:
        with pytest.raises(StoreUnavailable):
            await memory.save("errors", "k", "boom")
        assert (memory.persistence, stored_text(project)) == ("memory", "")
        (project / ".asnap/meta.json").rmdir()
        await memory.flush()
        [error] = (await memory.load_context()).error_history.unresolved
        assert (memory.persistence, error.occurrences) == ("disk", 1)


@pytest.mark.parametrize("where", ["a", "errors"])
async def test_namespace_that_cannot_be_written_holds_up_no_other(
    open_memory: Opener, project: Path, where: str
) -> None:
    async with open_memory() as memory:
        (project / ".asnap" / where).write_text("a file where a directory should be")
        with pytest.raises(StoreUnavailable):
            await memory.save(where, "k", {"message": "boom"})
        await memory.save("b", "k", 2)
        assert memory.persistence == "disk"
        assert any(where in notice for notice in memory.notices)
    async with open_memory() as memory:
        assert await memory.load("b", "k") == 2


async def test_refused_batch_leaves_every_file_as_it_was(
    open_memory: Opener, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_at_the_second(fd: int, data: bytes) -> None:
        if b"second" in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_all(fd, data)

    async with open_memory() as memory:
        await memory.observe_endpoint("GET /first")
        await memory.record_error("second")
        with monkeypatch.context() as disk:
            disk.setattr(files, "write_all", full_at_the_second)
            with pytest.raises(StoreUnavailable):
                await memory.flush()
            assert names_in(project / ".asnap/api_schema") == set(), "not even a temporary file is left"
        await memory.flush()
        context = await memory.load_context()
        assert context.error_history.unresolved[0].occurrences == 1, "nothing is counted twice"
        assert context.api_schema.endpoints_known == 1


async def test_large_save_that_does_not_fit_holds_up_no_small_one_and_no_delete(
    open_memory: Opener, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_for_large_files(fd: int, data: bytes) -> None:
        if len(data) > 1000:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_all(fd, data)

    async with open_memory() as memory:
        await memory.save("a", "old", 1)
        with monkeypatch.context() as disk:
            disk.setattr(files, "write_all", full_for_large_files)
            with pytest.raises(StoreUnavailable):
                await memory.save("a", "large", "x" * 2000)
            await memory.save("a", "small", 2)
            await memory.delete("a", "old")
            assert names_in(project / ".asnap/a") == {"small.json"}
            assert (memory.persistence, len(memory.notices)) == ("memory", 1), "the large one still waits"
        await memory.save("a", "next", 3)
        assert (memory.persistence, memory.notices) == ("disk", ())
    assert names_in(project / ".asnap/a") == {"small.json", "large.json", "next.json"}


# Names and values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "a\x00b", "x" * 300, "meta.json", "*", "ghp_" + "a1B2" * 10])
async def test_names_that_cannot_be_file_names_are_refused(open_memory: Opener, name: str) -> None:
    async with open_memory() as memory:
        for namespace, key in ((name, "k"), ("a", name)):
            with pytest.raises(InvalidInput):
                await memory.save(namespace, key, 1)


@pytest.mark.parametrize(
    "name", ["../up", "/etc/passwd", "a/b", ".lease", ".damaged", "CON", "ÄÖÜ", "a b", "%2e", "~"]
)
async def test_unusual_names_stay_inside_the_directory_and_round_trip(
    open_memory: Opener, project: Path, name: str
) -> None:
    async with open_memory() as memory:
        await memory.save(name, name, 1)
        assert await memory.namespaces() == {name: [name]}
        assert await memory.load(name, name) == 1
    assert names_in(project) == {".asnap"}


@pytest.mark.parametrize("data", [float("nan"), float("inf"), {1: 2}, object(), b"bytes", [10**5000]])
async def test_value_that_is_not_json_is_refused(open_memory: Opener, data: Any) -> None:
    async with open_memory() as memory:
        with pytest.raises(InvalidInput):
            await memory.save("a", "k", data)


async def test_deep_nesting_is_refused(open_memory: Opener) -> None:
    deep: Any = 1
    for _ in range(2000):
        deep = [deep]
    async with open_memory() as memory:
        with pytest.raises(InvalidInput):
            await memory.save("a", "k", deep)


@pytest.mark.parametrize("data", ["", 0, False, [], {}, "half a pair \ud800", "日本", 2**70])
async def test_every_json_value_round_trips(open_memory: Opener, data: Any) -> None:
    async with open_memory() as memory:
        await memory.save("a", "k", data)
        assert await memory.load("a", "k") == data


# Privacy -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("GASOLINE-SECURITY-REDACT")
async def test_secrets_never_reach_the_disk(open_memory: Opener, project: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    data = {
        "headers": {
            "Authorization": "Token abcdef12",
            "Cookie": "sid=s3ss10n",
            "x-api-key": "k3yk3yk3y",
            "Accept": "*/*",
        },
        "har": [{"name": "Set-Cookie", "value": "sid=s3ss10n"}, {"name": "Cookie", "value": "policy"}],
        "note": f"use {token}",
        "password": "hunter2hunter2",
    }
    async with open_memory() as memory:
        saved = await memory.save("a", "k", data)
        await memory.record_error("E1", message=f"401 with {token}")
    assert saved.redacted == {"github-token": 1, "header": 4, "password": 1}
    stored = stored_text(project)
    for secret in (token, "abcdef12", "s3ss10n", "k3yk3yk3y", "hunter2hunter2"):
        assert secret not in stored
    assert '"*/*"' in stored
    assert '"policy"' in stored


# Limits ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("GASOLINE-LIMIT-PROJECT", "GASOLINE-P-LIMIT-PROJECT")
async def test_full_project_refuses_writes_until_there_is_room(open_memory: Opener, project: Path) -> None:
    async with open_memory(limits=MemoryLimits(project_bytes=30_000)) as memory:
        for key in ("one", "two"):
            await memory.save("a", key, "x" * 10_000)
        with pytest.raises(LimitExceeded) as refused:
            await memory.save("a", "three", "x" * 10_000)
        assert refused.value.hint
        await memory.save("a", "two", "smaller")
        await memory.save("a", "three", "x" * 10_000)
        with pytest.raises(LimitExceeded):
            await memory.save("a", "four", "x" * 10_000)
        (project / ".asnap/a/one.json").unlink()  # by hand
        await memory.save("a", "four", "x" * 10_000)


@pytest.mark.requirement("GASOLINE-P-LIMIT-GLOBAL", "GASOLINE-P-EDGE-SEVERAL")
async def test_all_projects_share_a_limit(tmp_path: Path) -> None:
    limits = MemoryLimits(all_projects_bytes=30_000)
    projects = [tmp_path / name for name in ("one", "two")]
    for project in projects:
        project.mkdir()
    async with opener(projects[0])(limits=limits) as memory:
        await memory.save("a", "k", "x" * 20_000)
    async with opener(projects[1])(limits=limits) as memory:
        with pytest.raises(LimitExceeded):
            await memory.save("a", "k", "x" * 20_000)
        assert (await memory.stats()).other_projects_bytes > 20_000
    shutil.rmtree(projects[0])
    async with opener(projects[1])(limits=limits) as memory:
        await memory.save("a", "k", "x" * 20_000)


@pytest.mark.requirement("GASOLINE-P-EVICT-BASELINES", "GASOLINE-P-LIMIT-BASELINES")
async def test_least_recently_used_baseline_is_evicted(open_memory: Opener, clock: FixedClock) -> None:
    limits = MemoryLimits(baselines=3)
    async with open_memory(limits=limits) as memory:
        for name in ("a", "b", "c"):
            clock.advance(timedelta(minutes=1))
            await memory.save_baseline(Baseline(name=name, data={"n": name}))
        clock.advance(timedelta(minutes=1))
        assert (await memory.load_baseline("a")).data == {"n": "a"}
    async with open_memory(limits=limits) as memory:  # the use is remembered
        clock.advance(timedelta(minutes=1))
        saved = await memory.save_baseline(Baseline(name="d"))
        assert saved.evicted == ("baselines/b",)
        assert list(await memory.list("baselines")) == ["a", "c", "d"]


@pytest.mark.requirement("GASOLINE-P-EVICT-SCHEMA", "GASOLINE-P-LIMIT-ENDPOINTS")
async def test_rare_endpoints_are_merged_by_path(open_memory: Opener) -> None:
    async with open_memory(limits=MemoryLimits(endpoints=3)) as memory:
        for endpoint in ("GET /a", "GET /a", "GET /b", "GET /b", "GET /users/*", "GET /users/*", "GET /users/17"):
            await memory.observe_endpoint(endpoint)
        await memory.flush()
        endpoints = {e["endpoint"]: e for e in (await memory.load("api_schema", "schema"))["endpoints"]}
        assert set(endpoints) == {"GET /a", "GET /b", "GET /users/*"}
        assert (endpoints["GET /users/*"]["seen"], endpoints["GET /users/*"]["merged"]) == (3, 1)


@pytest.mark.requirement("GASOLINE-P-EVICT-PERFORMANCE")
async def test_old_timings_are_dropped(open_memory: Opener, clock: FixedClock) -> None:
    async with open_memory() as memory:
        await memory.record_timing("GET /old", 10)
    clock.advance(timedelta(days=31))
    async with open_memory() as memory:
        await memory.record_timing("GET /new", 10)
        assert (await memory.load_context()).performance.endpoints_tracked == 1


async def test_collected_data_always_fits_its_document(open_memory: Opener) -> None:
    async with open_memory() as memory:
        for n in range(510):
            await memory.record_error(f"E{n}", message="ß" * 50_000)
        for n in range(210):
            await memory.observe_endpoint(f"GET /{n}/x", shape="s" * 4000)
        await memory.flush()
        assert memory.notices == ()
        assert (await memory.load("errors", "history"))["entries"][-1]["message"].endswith("ß…")
        assert (await memory.load_context()).api_schema.endpoints_known == 200
        for too_long in (memory.record_error("x" * 501), memory.observe_endpoint("GET /", shape="s" * 5000)):
            with pytest.raises(LimitExceeded):
                await too_long


async def test_only_the_newest_timings_are_kept(open_memory: Opener, clock: FixedClock) -> None:
    async with open_memory(limits=MemoryLimits(timings=2)) as memory:
        for n in range(3):
            clock.advance(timedelta(seconds=1))
            await memory.record_timing(f"GET /{n}", 1)
        await memory.flush()
        kept = [entry["endpoint"] for entry in (await memory.load("performance", "endpoints"))["endpoints"]]
        assert kept == ["GET /1", "GET /2"]


# Errors over sessions ----------------------------------------------------------------------------------------


@pytest.mark.requirement("GASOLINE-ERROR-RESOLVED")
async def test_resolved_error_that_recurs_is_reopened(open_memory: Opener, clock: FixedClock) -> None:
    async with open_memory() as memory:
        await memory.record_error("E")
        await memory.resolve_error("E")
        clock.advance(timedelta(minutes=1))
        assert (await memory.load_context()).error_history.unresolved == ()
        await memory.record_error("E")
        [error] = (await memory.load_context()).error_history.unresolved
        assert (error.occurrences, error.resolved_at) == (2, None)
        with pytest.raises(InvalidInput):
            await memory.resolve_error("never seen")


@pytest.mark.requirement("GASOLINE-CONTEXT-RESOLVED")
async def test_errors_resolved_long_ago_are_not_reported(open_memory: Opener, clock: FixedClock) -> None:
    async with open_memory() as memory:
        await memory.record_error("E")
        await memory.resolve_error("E")
    clock.advance(timedelta(days=8))
    async with open_memory() as memory:
        assert (await memory.load_context()).error_history.resolved_recently == ()


@pytest.mark.parametrize(
    ("pattern", "text", "is_noise"),
    [
        ("[vite]", "[vite] ok", True),
        ("[vite]", "v", False),
        ("a*c", "xabcx", True),
        ("a*c", "ca", False),
        ("*", "x", False),
    ],
)
def test_noise_patterns_match_as_documented(pattern: str, text: str, *, is_noise: bool) -> None:
    assert NoiseRule(pattern=pattern).matches(text) is is_noise


# Clearing ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("GASOLINE-P-PRIVACY-CLEAR")
async def test_clearing_removes_everything(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
    async with open_memory() as memory:
        await memory.save_baseline(Baseline(name="b"))
        await memory.record_error("E")
        await memory.clear()
        context = await memory.load_context()
        assert (context.session_count, context.last_session, context.error_history.unresolved) == (1, None, ())
        assert await memory.namespaces() == {}
    assert names_in(project / ".asnap") == {".gitignore", ".lease", "meta.json"}


# A second instance -------------------------------------------------------------------------------------------


async def test_reader_that_becomes_the_writer_sees_the_first_writers_changes(
    open_memory: Opener, clock: FixedClock
) -> None:
    limits = MemoryLimits(baselines=2)
    async with open_memory(limits=limits) as first, open_memory(limits=limits) as second:
        for name in ("a", "b"):
            clock.advance(timedelta(minutes=1))
            await first.save_baseline(Baseline(name=name))
        clock.advance(timedelta(minutes=1))
        await first.load_baseline("a")
        await first.aclose()
        clock.advance(timedelta(minutes=1))
        assert (await second.save_baseline(Baseline(name="c"))).evicted == ("baselines/b",)


async def test_noise_rules_take_effect_even_if_the_disk_refuses(open_memory: Opener, project: Path) -> None:
    (project / ".asnap").write_text("a file where the directory should be")
    async with open_memory() as memory:
        with pytest.raises(StoreUnavailable):
            await memory.set_noise(NoiseRule(pattern="favicon"))
        assert memory.noise_rule("favicon") is not None
        (project / ".asnap").unlink()
        await memory.save("a", "k", 1)  # the disk is back: what it refused is written first
        assert (project / ".asnap/noise/config.json").exists()


def test_project_root_is_below_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ProjectMemory(tmp_path / "work", state=tmp_path).project == (tmp_path / "work").resolve()


# What a new session gets for nothing -------------------------------------------------------------------------


@pytest.mark.requirement("GASOLINE-P-PROOF-REGRESSION")
async def test_regression_in_an_earlier_sessions_baseline_is_found(open_memory: Opener) -> None:
    async with open_memory() as memory:
        await memory.save_baseline(Baseline(name="login", data={"status": 200, "keys": ["token", "user"]}))
    async with open_memory() as memory:
        before = (await memory.load_baseline("login")).data
        assert before != {"status": 200, "keys": ["user"]}
        assert before == {"status": 200, "keys": ["token", "user"]}


@pytest.mark.requirement("GASOLINE-P-CONTEXT-SCHEMA")
async def test_context_reports_how_much_of_the_api_was_seen_recently(open_memory: Opener) -> None:
    async with open_memory() as memory:
        await memory.observe_endpoint("GET /old")
        await memory.observe_endpoint("GET /used")
    for _ in range(2):
        async with open_memory():
            pass
    async with open_memory() as memory:
        await memory.observe_endpoint("GET /used")
        schema = (await memory.load_context()).api_schema
        assert (schema.endpoints_known, schema.seen_recently) == (2, 1)


@pytest.mark.requirement("GASOLINE-P-BOOT-LOG")
async def test_opening_logs_what_is_stored(open_memory: Opener, caplog: pytest.LogCaptureFixture) -> None:
    async with open_memory() as memory:
        await memory.save_baseline(Baseline(name="secret-name"))
    with caplog.at_level("INFO", logger="snapshot_plugin.memory"):
        async with open_memory():
            pass
    assert "session 2: Loaded session context: 1 baselines, 0 noise rules, 0 endpoints" in caplog.text
    assert "secret-name" not in caplog.text


@pytest.mark.requirement("GASOLINE-P-EDGE-MOVED", "GASOLINE-META-PATH")
async def test_moved_project_keeps_its_memory(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
    moved = Path(shutil.move(project, project.with_name("moved")))
    async with opener(moved)() as memory:
        assert await memory.load("a", "k") == 1
        assert (await memory.load_context()).project == str(moved)


@pytest.mark.requirement("GASOLINE-P-EDGE-SEVERAL", "GASOLINE-P-PLACE-PROJECT", "GASOLINE-P-PRIVACY-PROJECTS")
async def test_projects_are_isolated_from_each_other(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        async with opener(tmp_path / name)() as memory:
            assert await memory.namespaces() == {}
            assert memory.session_count == 1
            await memory.save("a", "k", name)


async def test_preference_that_the_disk_refused_is_written_later(open_memory: Opener, tmp_path: Path) -> None:
    async with open_memory(state=tmp_path / "user") as memory:
        shutil.rmtree(tmp_path / "user")
        (tmp_path / "user").write_text("a file where the directory should be")
        with pytest.raises(StoreUnavailable):
            await memory.save("global", "style", {"indent": 2})
        assert await memory.preferences() == {"style": {"indent": 2}}
        (tmp_path / "user").unlink()
        await memory.flush()
    async with open_memory(state=tmp_path / "user") as memory:
        assert await memory.load("global", "style") == {"indent": 2}


async def test_frequent_endpoints_are_kept_if_the_document_is_too_large_for_a_file(open_memory: Opener) -> None:
    async with open_memory(limits=MemoryLimits(entry_bytes=4000)) as memory:
        seen = [{"endpoint": f"GET /{n:02}/x", "seen": 100 - n} for n in range(60)]
        receipt = await memory.save("api_schema", "schema", seen)
        endpoints = (await memory.load("api_schema", "schema"))["endpoints"]
    assert receipt.trimmed
    assert max(entry["seen"] for entry in endpoints) == 100
