"""Single promises about what is written when, and what a new session finds."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import StoreUnavailable
from snapshot_plugin.memory import Baseline, NoiseRule
from snapshot_plugin.testing import FixedClock
from tests.memory.opening import Opener

pytestmark = pytest.mark.anyio


def on_disk(project: Path, name: str) -> Any:
    file = project / ".asnap" / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


@pytest.mark.requirement(
    "GASOLINE-P-WRITE-THROUGH", "GASOLINE-P-DATA-BASELINES", "GASOLINE-LIFE-SHUTDOWN-BASELINES"
)
async def test_baseline_is_on_disk_immediately_and_after_closing(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        for status in (200, 201):  # a feature is finished, and later changed
            await memory.save_baseline(Baseline(name="login", data={"status": status}))
            assert on_disk(project, "baselines/login")["data"] == {"status": status}
    assert on_disk(project, "baselines/login")["data"] == {"status": 201}


@pytest.mark.requirement("GASOLINE-P-WRITE-NOISE", "GASOLINE-P-DATA-NOISE", "GASOLINE-LIFE-SHUTDOWN-NOISE")
async def test_noise_rules_and_counts_are_on_disk_immediately_and_after_closing(
    open_memory: Opener, project: Path
) -> None:
    for session, pattern in enumerate(("favicon", "ResizeObserver"), 1):
        async with open_memory() as memory:
            await memory.set_noise(NoiseRule(pattern=pattern, auto=True))
            assert on_disk(project, "noise/config") == {"rules": [{"pattern": pattern, "auto": True}]}
            for _ in range(session):
                assert not await memory.record_error(f"{pattern} again")
        assert on_disk(project, "noise/config")["rules"] == [
            {"pattern": pattern, "auto": True, "filtered": session}
        ]


@pytest.mark.requirement("GASOLINE-P-WRITE-SCHEMA", "GASOLINE-P-DATA-SCHEMA", "GASOLINE-P-KEEP-NETWORK")
async def test_endpoints_are_flushed_later_and_survive_a_restart(open_memory: Opener, project: Path) -> None:
    async with open_memory() as memory:
        await memory.observe_endpoint("GET /users", shape={"id": "int"})
        assert on_disk(project, "api_schema/schema") is None
        await memory.flush()
        assert len(on_disk(project, "api_schema/schema")["endpoints"]) == 1
        await memory.observe_endpoint("POST /users")
    async with open_memory() as memory:
        endpoints = (await memory.load("api_schema", "schema"))["endpoints"]
        assert [(entry["endpoint"], entry.get("shape")) for entry in endpoints] == [
            ("GET /users", {"id": "int"}),
            ("POST /users", None),
        ]


@pytest.mark.requirement(
    "GASOLINE-P-DATA-ERRORS",
    "GASOLINE-ERROR-SEEN",
    "GASOLINE-CONTEXT-ERRORS",
    "GASOLINE-P-BOOT-ERRORS",
)
async def test_each_occurrence_updates_count_and_last_sighting(open_memory: Opener, clock: FixedClock) -> None:
    first = clock()
    async with open_memory() as memory:
        await memory.record_error("E")
    last = clock.advance(timedelta(days=2))
    async with open_memory() as memory:
        await memory.record_error("E")
        [error] = (await memory.load_context()).error_history.unresolved
    assert (error.fingerprint, error.occurrences, error.first_seen, error.last_seen) == ("E", 2, first, last)


@pytest.mark.requirement("GASOLINE-P-DATA-PERFORMANCE")
async def test_each_session_updates_the_running_average(open_memory: Opener) -> None:
    for times in ((100, 200), (600,), (300,)):
        async with open_memory() as memory:
            for time in times:
                await memory.record_timing("GET /", time)
    async with open_memory() as memory:
        [timing] = (await memory.load("performance", "endpoints"))["endpoints"]
    assert (timing["session_ms"], timing["before_ms"], timing["before_samples"]) == (300, 300, 3)


@pytest.mark.requirement("GASOLINE-P-CONTEXT-SCHEMA")
@pytest.mark.requirement(
    "GASOLINE-P-BOOT-SCHEMA", "GASOLINE-P-BOOT-BASELINES", "GASOLINE-P-BOOT-ERRORS", "GASOLINE-CONTEXT-SCHEMA",
    "GASOLINE-P-CONTEXT-BASELINES", "GASOLINE-P-PROOF-GROWS",
)  # fmt: skip
async def test_new_session_has_everything_stored_before_it(open_memory: Opener, clock: FixedClock) -> None:
    sizes = []
    for number in (1, 2, 3):
        last = clock.advance(timedelta(hours=1))
        async with open_memory() as memory:
            await memory.save_baseline(Baseline(name=f"page-{number}", data={"n": number}))
            await memory.observe_endpoint(f"GET /{number}")
            await memory.record_error(f"E{number}")
        async with open_memory() as memory:
            sizes.append((await memory.stats()).total_bytes)
            context = await memory.load_context()
            assert (context.api_schema.endpoints_known, context.api_schema.last_updated) == (number, last)
            assert (context.baselines.count, context.baselines.last_validated) == (number, last)
            assert context.baselines.names == tuple(f"page-{n}" for n in range(1, number + 1))
            assert len(context.error_history.unresolved) == number
            assert (await memory.load_baseline(f"page-{number}")).data == {"n": number}
    assert sizes == sorted(set(sizes))


@pytest.mark.requirement(
    "GASOLINE-P-STATS-TOTAL",
    "GASOLINE-P-STATS-OLDEST",
    "GASOLINE-META-CREATED",
    "GASOLINE-META-PATH",
)
async def test_stats_and_notes_show_project_size_and_age(
    open_memory: Opener, project: Path, clock: FixedClock
) -> None:
    begun = clock()
    async with open_memory() as memory:
        await memory.save("a", "old", "x" * 50)
        clock.advance(timedelta(days=1))
        await memory.save("a", "new", "y" * 70)
    async with open_memory() as memory:
        stats = await memory.stats()
    sizes = [(project / ".asnap/a" / name).stat() for name in ("old.json", "new.json")]
    assert stats.project == str(project)
    assert stats.total_bytes == sum(size.st_size for size in sizes)
    assert stats.oldest is not None
    assert abs(stats.oldest.timestamp() - min(size.st_mtime for size in sizes)) < 0.001
    assert stats.session_count == 2
    meta = on_disk(project, "meta")
    assert (meta["project"], meta["created_at"][:19]) == (str(project), begun.isoformat()[:19])


@pytest.mark.requirement("GASOLINE-P-EDGE-SCHEMA")
async def test_large_schema_is_reduced_to_the_200_most_seen_endpoints(open_memory: Opener) -> None:
    endpoints = [{"endpoint": f"GET /{n}/x", "seen": n + 2} for n in range(1000)]
    async with open_memory() as memory:
        saved = await memory.save("api_schema", "schema", {"endpoints": endpoints})
        kept = {entry["endpoint"] for entry in (await memory.load("api_schema", "schema"))["endpoints"]}
    assert saved.trimmed == 800
    assert kept == {f"GET /{n}/x" for n in range(800, 1000)}


@pytest.mark.requirement("GASOLINE-FLUSH-DIRTY")
async def test_flush_writes_only_what_changed(open_memory: Opener, project: Path) -> None:
    def inodes() -> dict[str, int]:
        return {file.parent.name: file.stat().st_ino for file in (project / ".asnap").glob("*/*.json")}

    async with open_memory() as memory:
        await memory.record_error("E")
        await memory.observe_endpoint("GET /")
        await memory.flush()
        with (project / ".asnap/errors/history.json").open(), (project / ".asnap/api_schema/schema.json").open():
            before = inodes()
            await memory.record_error("another")
            await memory.flush()
            changed = {name for name, number in inodes().items() if number != before[name]}
    assert changed == {"errors"}


@pytest.mark.requirement("GASOLINE-FLUSH-EXIT")
async def test_flush_task_ends_with_the_session(open_memory: Opener, project: Path) -> None:
    with anyio.fail_after(60):
        async with open_memory(flush_interval=0.001) as memory:
            await memory.record_error("E")
            await anyio.sleep(0.01)
    before = (project / ".asnap/meta.json").stat().st_mtime_ns
    with pytest.raises(StoreUnavailable):
        await memory.flush()
    assert (project / ".asnap/meta.json").stat().st_mtime_ns == before
