"""The eighteen scenarios of the technical specification, by number."""

from __future__ import annotations

import errno
import json
import shutil
import stat
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import LimitExceeded, NotFound, StoreUnavailable
from snapshot_plugin.memory import Baseline, MemoryLimits, NoiseRule, ProjectMemory, files
from snapshot_plugin.testing import FixedClock
from tests.memory.opening import Opener, names_in

pytestmark = pytest.mark.anyio

DATA = {"text": "grüße", "numbers": [1, 2.5, -3, 1e100], "nested": {"null": None, "yes": True}, "empty": [{}]}


@pytest.mark.requirement("GASOLINE-TEST-01", "GASOLINE-PLACE-PROJECT", "GASOLINE-PLACE-META")
async def test_scenario_1_memory_is_a_directory_in_the_project(open_memory: Opener, project: Path) -> None:
    async with open_memory():
        pass
    assert (project / ".asnap" / "meta.json").is_file()


@pytest.mark.requirement("GASOLINE-TEST-01", "GASOLINE-P-PLACE-IDENTITY", "GASOLINE-P-BOOT-PROJECT")
async def test_scenario_1_project_root_is_found_from_a_subdirectory(open_memory: Opener, project: Path) -> None:
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    (project / ".git").mkdir()
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main")
    assert ProjectMemory(below, state=project / "r").project == project
    async with open_memory():
        pass
    shutil.rmtree(project / ".git")
    assert ProjectMemory(below, state=project / "r").project == project


@pytest.mark.requirement("GASOLINE-TEST-02", "GASOLINE-PLACE-GITIGNORE", "GASOLINE-SECURITY-VCS")
async def test_scenario_2_the_memory_is_ignored_by_git(open_memory: Opener, project: Path) -> None:
    (project / ".gitignore").write_text("build")
    async with open_memory():
        pass
    assert (project / ".gitignore").read_text().splitlines() == ["build", ".asnap/"]


@pytest.mark.requirement("GASOLINE-TEST-02")
@pytest.mark.parametrize("line", [".asnap", ".asnap/", "/.asnap/", "**/.asnap/", ".asnap/*"])
async def test_scenario_2_gitignore_that_already_ignores_it_is_left_alone(
    open_memory: Opener, project: Path, line: str
) -> None:
    (project / ".gitignore").write_text(f"a\r\n{line}\r\nb")
    before = (project / ".gitignore").read_bytes()
    async with open_memory():
        pass
    assert (project / ".gitignore").read_bytes() == before


@pytest.mark.requirement(
    "GASOLINE-TEST-03",
    "GASOLINE-PLACE-NAMESPACE",
    "GASOLINE-PLACE-KEY",
    "GASOLINE-PLACE-BY-HAND",
    "GASOLINE-LIFE-SAVE",
    "GASOLINE-EDGE-MKDIR",
)
async def test_scenario_3_saved_value_is_loaded_unchanged(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.save("decisions", "database", DATA)
        assert await memory.load("decisions", "database") == DATA
        assert json.loads((project / ".asnap/decisions/database.json").read_text()) == DATA
    async with open_memory() as memory:
        assert await memory.load("decisions", "database") == DATA


@pytest.mark.requirement("GASOLINE-TEST-04")
async def test_scenario_4_an_unknown_key_is_an_error(open_memory: Opener) -> None:
    async with open_memory() as memory:
        with pytest.raises(NotFound):
            await memory.load("decisions", "nothing")


@pytest.mark.requirement("GASOLINE-TEST-05")
async def test_scenario_5_keys_are_listed_without_extension(open_memory: Opener) -> None:
    async with open_memory() as memory:
        for key in ("login", "v1.json", "Übersicht", "A b/c"):
            await memory.save("pages", key, 1)
        assert sorted(await memory.list("pages")) == sorted(["login", "v1.json", "Übersicht", "A b/c"])
        assert list(await memory.list("unused")) == []


@pytest.mark.requirement("GASOLINE-TEST-06")
async def test_scenario_6_a_deleted_entry_is_gone(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.save("pages", "login", 1)
        await memory.delete("pages", "login")
        assert not (project / ".asnap/pages/login.json").exists()
        with pytest.raises(NotFound):
            await memory.load("pages", "login")
        with pytest.raises(NotFound):
            await memory.delete("pages", "login")


@pytest.mark.requirement("GASOLINE-TEST-07", "GASOLINE-P-STATS-SPACES")
async def test_scenario_7_stats_tell_sizes_and_counts(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.save("a", "one", "x" * 100)
        await memory.save("a", "two", "y" * 200)
        await memory.save("b", "one", 3)
        stats = await memory.stats()
    sizes = {ns: sum(f.stat().st_size for f in (project / ".asnap" / ns).iterdir()) for ns in "ab"}
    assert {ns: (of.entries, of.bytes) for ns, of in stats.namespaces.items()} == {
        "a": (2, sizes["a"]),
        "b": (1, sizes["b"]),
    }
    assert stats.total_bytes == sum(sizes.values())
    assert stats.session_count == 1


@pytest.mark.requirement("GASOLINE-TEST-08", "GASOLINE-LIMIT-ENTRY")
async def test_scenario_8_an_entry_over_a_megabyte_is_refused(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.save("big", "fits", "x" * (1024 * 1024 - 3))
        with pytest.raises(LimitExceeded) as refused:
            await memory.save("big", "over", "x" * (1024 * 1024 - 2))
        assert refused.value.hint
        assert list(await memory.list("big")) == ["fits"]


@pytest.mark.requirement(
    "GASOLINE-TEST-09",
    "GASOLINE-LIFE-START",
    "GASOLINE-META-LAST",
    "GASOLINE-META-COUNT",
    "GASOLINE-P-CONTEXT-LAST",
    "GASOLINE-P-CONTEXT-COUNT",
    "GASOLINE-P-DATA-META",
    "GASOLINE-LIFE-SHUTDOWN",
)
async def test_scenario_9_restart_counts_the_session_and_shows_the_last(
    open_memory: Opener, clock: FixedClock
) -> None:
    async with open_memory():
        ended = clock.advance(timedelta(hours=1))
    clock.advance(timedelta(days=1))
    async with open_memory() as memory:
        context = await memory.load_context()
    assert (context.session_count, context.last_session) == (2, ended)


@pytest.mark.requirement("GASOLINE-TEST-10", "GASOLINE-CONTEXT-PROJECT", "GASOLINE-P-CONTEXT-PROJECT")
async def test_scenario_10_a_fresh_memory_has_one_session_and_no_data(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        context = await memory.load_context()
    assert context.project == str(project)
    assert (context.session_count, context.last_session) == (1, None)
    assert context.baselines.count == context.api_schema.endpoints_known == context.noise_config.rules_count == 0
    assert context.error_history.unresolved == context.error_history.resolved_recently == ()
    assert context.performance.endpoints_tracked == 0
    assert context.notices == ()


@pytest.mark.requirement(
    "GASOLINE-TEST-11",
    "GASOLINE-SPACE-BASELINES",
    "GASOLINE-SPACE-NOISE",
    "GASOLINE-SPACE-SCHEMA",
    "GASOLINE-SPACE-ERRORS",
    "GASOLINE-SPACE-PERFORMANCE",
    "GASOLINE-CONTEXT-BASELINES",
    "GASOLINE-CONTEXT-NOISE",
    "GASOLINE-CONTEXT-PERFORMANCE",
    "GASOLINE-CONTEXT-RESOLVED",
    "GASOLINE-ERROR-FINGERPRINT",
    "GASOLINE-ERROR-COUNT",
    "GASOLINE-ERROR-RESOLVED",
    "GASOLINE-P-KEEP-BASELINES",
    "GASOLINE-P-KEEP-SCHEMA",
    "GASOLINE-P-KEEP-ERRORS",
    "GASOLINE-P-CONTEXT-NOISE",
    "GASOLINE-P-CONTEXT-ERRORS",
    "GASOLINE-P-CONTEXT-PERFORMANCE",
    "GASOLINE-P-PROOF-BASELINES",
    "GASOLINE-P-PROOF-SCHEMA",
)
async def test_scenario_11_everything_stored_is_summarised(open_memory: Opener, clock: FixedClock) -> None:
    async with open_memory() as memory:
        await memory.save_baseline(Baseline(name="login", data={"status": 200}))
        await memory.save_baseline(Baseline(name="cart"))
        await memory.set_noise(NoiseRule(pattern="ResizeObserver", auto=True), NoiseRule(pattern="DevTools*"))
        await memory.record_error("TypeError_app.js:42", message="x is undefined")
        await memory.record_error("TypeError_app.js:42")
        await memory.record_error("NetworkError_/api/auth")
        assert not await memory.record_error("ResizeObserver loop limit")
        await memory.observe_endpoint("GET /api/users", shape={"id": "int"})
        await memory.record_timing("GET /api/users", 150)
    clock.advance(timedelta(hours=1))
    async with open_memory() as memory:
        await memory.resolve_error("NetworkError_/api/auth")
        await memory.record_timing("GET /api/users", 380)
        await memory.save("decisions", "database", "sqlite")
        for _ in range(2):  # from memory, then from disk
            context = await memory.load_context()
            assert context.baselines.names == ("cart", "login")
            assert context.api_schema.endpoints_known == 1
            noise = context.noise_config
            assert (noise.rules_count, noise.auto_detected, noise.manual) == (2, 1, 1)
            assert noise.entries_filtered_lifetime == 1
            [open_error] = context.error_history.unresolved
            assert (open_error.fingerprint, open_error.occurrences) == ("TypeError_app.js:42", 2)
            assert open_error.message == "x is undefined"
            [fixed] = context.error_history.resolved_recently
            assert (fixed.fingerprint, fixed.sessions_to_fix) == ("NetworkError_/api/auth", 2)
            [slow] = context.performance.degraded_since_last
            assert (slow.endpoint, slow.was_ms, slow.now_ms) == ("GET /api/users", 150, 380)
            assert context.other_namespaces == {"decisions": ("database",)}
            await memory.flush()


@pytest.mark.requirement(
    "GASOLINE-TEST-12",
    "GASOLINE-LIFE-CONTEXT",
    "GASOLINE-P-KEEP-NOISE",
    "GASOLINE-P-BOOT-NOISE",
    "GASOLINE-P-PROOF-NOISE",
)
async def test_scenario_12_loaded_noise_rules_are_in_effect(open_memory: Opener) -> None:
    async with open_memory() as memory:
        await memory.save("noise", "config", {"rules": ["favicon", {"pattern": "[HMR] *ms"}]})
        assert memory.noise_rule("[HMR] updated in 3ms") is not None
    async with open_memory() as memory:
        assert (await memory.load_context()).noise_config.rules_count == 2
        assert not await memory.record_error("404 /favicon.ico")
        assert await memory.record_error("500 /api")
        assert len((await memory.load_context()).error_history.unresolved) == 1


@pytest.mark.requirement("GASOLINE-TEST-13", "GASOLINE-EDGE-CONCURRENT")
async def test_scenario_13_reads_and_writes_at_once_never_see_a_torn_entry(open_memory: Opener) -> None:
    versions = [{"version": n, "text": str(n) * 5000} for n in range(1, 9)]

    async def write(key: str) -> None:
        for version in versions:
            await memory.save("shared", key, version)
            await memory.record_error(f"error {key}")

    async def read(key: str) -> None:
        for _ in range(20):
            data = await memory.load("shared", key)
            assert data == versions[data["version"] - 1]
            await memory.load_context()

    async with open_memory() as memory:
        for key in ("a", "b"):
            await memory.save("shared", key, versions[0])
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for key in ("a", "b"):
                    tasks.start_soon(write, key)
                    tasks.start_soon(read, key)
        counts = {
            error.fingerprint: error.occurrences for error in (await memory.load_context()).error_history.unresolved
        }
    assert counts == {"error a": len(versions), "error b": len(versions)}


@pytest.mark.requirement("GASOLINE-TEST-14", "GASOLINE-LIFE-SHUTDOWN", "GASOLINE-P-WRITE-BUFFERED")
async def test_scenario_14_closing_writes_collected_data(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.record_error("E1")
        assert not (project / ".asnap/errors/history.json").exists()
    [entry] = json.loads((project / ".asnap/errors/history.json").read_text())["entries"]
    assert entry["fingerprint"] == "E1"


@pytest.mark.requirement("GASOLINE-TEST-14")
async def test_scenario_14_cancelled_session_writes_collected_data(open_memory: Opener, project: Path) -> None:
    with anyio.CancelScope() as scope:
        async with open_memory() as memory:
            await memory.record_error("E1")
            scope.cancel()
            await anyio.sleep_forever()
    assert (project / ".asnap/errors/history.json").exists()


async def test_scenario_14_callers_error_is_raised_unchanged(open_memory: Opener, project: Path) -> None:
    with pytest.raises(KeyError):  # noqa: PT012 — the block is what is tested
        async with open_memory() as memory:
            await memory.record_error("E1")
            raise KeyError
    assert (project / ".asnap/errors/history.json").exists()


COLLECTED = ("errors/history", "api_schema/schema", "performance/endpoints")


@pytest.mark.requirement(
    "GASOLINE-TEST-15",
    "GASOLINE-FLUSH-30S",
    "GASOLINE-P-WRITE-BUFFERED",
    "GASOLINE-P-WRITE-SCHEMA",
    "GASOLINE-P-EDGE-CRASH",
)
async def test_scenario_15_collected_data_is_written_within_the_interval(
    open_memory: Opener, project: Path
) -> None:
    files = [project / ".asnap" / f"{name}.json" for name in COLLECTED]
    async with open_memory(flush_interval=0.01) as memory:
        await memory.record_error("E1")
        await memory.observe_endpoint("GET /users")
        await memory.record_timing("GET /users", 10)
        with anyio.fail_after(60):
            while not all(file.exists() for file in files):  # noqa: ASYNC110 — a file has no event
                await anyio.sleep(0.005)


@pytest.mark.requirement("GASOLINE-TEST-16", "GASOLINE-EDGE-READ-ONLY")
async def test_scenario_16_memory_works_without_a_writable_disk(open_memory: Opener, project: Path) -> None:
    (project / ".asnap").write_text("a file where the directory should be")  # root may write to read-only ones
    async with open_memory() as memory:
        with pytest.raises(StoreUnavailable):
            await memory.save("a", "k", {"kept": True})
        assert await memory.load("a", "k") == {"kept": True}
        assert list(await memory.list("a")) == ["k"]
        await memory.record_error("E1")
        context = await memory.load_context()
        assert (context.persistence, len(context.notices)) == ("memory", 1)
        assert context.error_history.unresolved[0].fingerprint == "E1"
        with pytest.raises(StoreUnavailable):
            await memory.delete("a", "k")
        with pytest.raises(NotFound):
            await memory.load("a", "k")
        (project / ".asnap").unlink()
        await memory.save("a", "later", 1)
        assert (memory.persistence, memory.notices) == ("disk", ())
    assert json.loads((project / ".asnap/a/later.json").read_text()) == 1
    assert (project / ".asnap/errors/history.json").exists()


@pytest.mark.requirement("GASOLINE-TEST-16", "GASOLINE-P-EDGE-FULL")
async def test_scenario_16_disk_filling_up_is_survived(
    open_memory: Opener, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with open_memory() as memory:
        await memory.save("a", "k", "old")
        with monkeypatch.context() as disk:
            disk.setattr(files, "write_all", full)
            with pytest.raises(StoreUnavailable):
                await memory.save("a", "k", "new")
            await memory.record_error("E1")
            with pytest.raises(StoreUnavailable):
                await memory.flush()
            assert await memory.load("a", "k") == "new"
            assert json.loads((project / ".asnap/a/k.json").read_text()) == "old"
            assert (await memory.stats()).persistence == "memory"
        await memory.flush()
        assert json.loads((project / ".asnap/a/k.json").read_text()) == "new"
        context = await memory.load_context()
        assert (context.persistence, context.notices) == ("disk", ())
        assert context.error_history.unresolved[0].occurrences == 1


@pytest.mark.requirement(
    "GASOLINE-TEST-17", "GASOLINE-ERROR-CAP", "GASOLINE-P-LIMIT-ERRORS", "GASOLINE-P-EVICT-ERRORS"
)
async def test_scenario_17_501st_error_evicts_the_first(open_memory: Opener) -> None:
    async with open_memory() as memory:
        history = [{"fingerprint": f"E{n}"} for n in range(500)]
        await memory.save("errors", "history", {"entries": history})
        await memory.record_error("E0")
        await memory.record_error("E500")
        await memory.flush()
        kept = [entry["fingerprint"] for entry in (await memory.load("errors", "history"))["entries"]]
        assert kept == [f"E{n}" for n in range(1, 501)]
        saved = await memory.save("errors", "history", {"entries": [{"fingerprint": f"F{n}"} for n in range(501)]})
        assert saved.trimmed == 501
        assert (await memory.load("errors", "history"))["entries"][0]["fingerprint"] == "F1"


async def test_scenario_17_errors_saved_under_keys_of_their_own_join_the_history(
    open_memory: Opener, project: Path
) -> None:
    async with open_memory(limits=MemoryLimits(errors=3)) as memory:
        for n in range(3):
            await memory.save("errors", f"e{n}", {"message": "boom"})
        assert (await memory.save("errors", "e3", {"message": "boom"})).trimmed == 1
        assert names_in(project / ".asnap/errors") == {"history.json"}
        assert list(await memory.list("errors")) == ["e1", "e2", "e3"]
        assert (await memory.load("errors", "e3"))["message"] == "boom"
        context = await memory.load_context()
        assert sorted(e.fingerprint for e in context.error_history.unresolved) == ["e1", "e2", "e3"]
        await memory.delete("errors", "e3")
        with pytest.raises(NotFound):
            await memory.load("errors", "e3")


@pytest.mark.requirement("GASOLINE-TEST-18", "GASOLINE-ERROR-AGE", "GASOLINE-LIMIT-EVICT")
async def test_scenario_18_errors_unseen_for_thirty_days_are_removed(
    open_memory: Opener, clock: FixedClock
) -> None:
    async with open_memory() as memory:
        await memory.record_error("old")
        await memory.record_error("recurring")
        await memory.save("errors", "old-key", {"message": "boom"})
    clock.advance(timedelta(days=20))
    async with open_memory() as memory:
        await memory.record_error("recurring")
    clock.advance(timedelta(days=11))
    async with open_memory() as memory:
        entries = (await memory.load("errors", "history"))["entries"]
        assert [entry["fingerprint"] for entry in entries] == ["recurring"]
        assert list(await memory.list("errors")) == ["recurring"]


@pytest.mark.requirement("GASOLINE-SECURITY-MODE", "GASOLINE-P-PRIVACY-USERS")
async def test_every_file_is_private_to_its_owner(open_memory: Opener, project: Path) -> None:
    (project / ".asnap").mkdir(mode=0o755)
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
        await memory.record_error("E")
    assert _modes(project / ".asnap") == ({0o700}, {0o600})


def _modes(directory: Path) -> tuple[set[int], set[int]]:
    paths = [directory, *directory.glob("**/*")]
    directories = {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()}
    return directories, {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()}
