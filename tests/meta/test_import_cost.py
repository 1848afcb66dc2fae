from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.testing import make_snapshot

HEAVY = frozenset({"acp", "click", "cryptography", "mcp", "pydantic", "starlette", "textual"})
FOREIGN = frozenset({"acp", "mcp", "starlette", "textual"})
CORE = ["model", "migrate", "codec", "store", "store.filesystem", "store.memory", "manager", "manager.manager"]
SLOW = frozenset({"anyio", "asyncio", "cryptography", "email", "importlib.metadata", "pydantic", "sqlite3", "ulid"})
"""What no command loads that only looks: each takes longer to load than such a command takes for its work."""
LIGHT = [["--help"], ["paths"], ["paths", "--help"], ["list", "--help"], ["config", "show"], ["completion", "bash"]]
SECONDS = 0.2
TRIES = 5


def modules_after(statement: str) -> set[str]:
    """Which top-level modules a fresh interpreter has loaded after *statement*."""
    program = f"import sys, json; {statement}; print(json.dumps(list(sys.modules)))"
    loaded: list[str] = json.loads(run(program))
    return {name.partition(".")[0] for name in loaded}


def modules_of_command(*words: str) -> set[str]:
    """All modules that a command has loaded when it ends."""
    program = (
        "import sys, json\n"
        "from snapshot_plugin import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit as end: sys.exit(end.code or json.dumps(list(sys.modules)))\n"
    )
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return set(json.loads(done.stderr.splitlines()[-1]))


def cpu_seconds_of(statement: str) -> float:
    """The least CPU a fresh interpreter spent on *statement*; the machine may be busy, so the best try counts."""
    usage = "resource.getrusage(resource.RUSAGE_SELF)"
    spent = f"sum({usage}[:2])"
    program = f"import resource; start = {spent}; {statement}; print({spent} - start)"
    return min(float(run(program)) for _ in range(TRIES))


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.requirement("STORE-IMPORT-COST")
def test_importing_the_package_loads_nothing_heavy() -> None:
    assert modules_after("import snapshot_plugin") & HEAVY == set()


@pytest.mark.requirement("STORE-IMPORT-COST")
def test_importing_the_package_uses_little_cpu() -> None:
    assert cpu_seconds_of("import snapshot_plugin") < SECONDS


@pytest.mark.requirement("STORE-IMPORT-CORE")
def test_no_part_of_the_core_loads_a_protocol_or_a_web_framework() -> None:
    every = ", ".join(f"snapshot_plugin.{module}" for module in CORE)
    assert modules_after(f"import {every}") & FOREIGN == set()


@pytest.mark.requirement("STORE-IMPORT-CORE")
def test_using_every_public_name_loads_no_protocol_and_no_web_framework() -> None:
    everything = "import snapshot_plugin as s; [getattr(s, name) for name in s.__all__]"
    assert modules_after(everything) & FOREIGN == set()


def test_loading_a_heavy_module_is_detected() -> None:
    assert modules_after("import pydantic") & HEAVY == {"pydantic"}


@pytest.mark.parametrize("words", LIGHT, ids=" ".join)
def test_command_without_a_store_loads_nothing_slow(words: list[str]) -> None:
    assert modules_of_command(*words) & {*SLOW, "pydantic_core"} == set()


def test_listing_a_plain_store_loads_nothing_slow(tmp_path: Path) -> None:
    place = tmp_path / "store"
    save(place, "one", "two")

    assert modules_of_command("list", "--all", "--store", str(place)) & SLOW == set()


def test_loading_a_slow_module_is_detected(tmp_path: Path) -> None:
    save(tmp_path / "store", "one")

    assert modules_of_command("show", "one", "--store", str(tmp_path / "store")) & SLOW >= {"anyio", "pydantic"}


def save(place: Path, *names: str) -> None:
    async def saved() -> None:
        async with FilesystemStore(place, background=False) as store:
            for name in names:
                await store.save(make_snapshot("hello", session_id=name))

    anyio.run(saved)
