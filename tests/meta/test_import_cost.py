from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = frozenset({"acp", "click", "cryptography", "mcp", "pydantic", "starlette", "textual"})
FOREIGN = frozenset({"acp", "mcp", "starlette", "textual"})
CORE = ["model", "migrate", "codec", "store", "store.filesystem", "store.memory", "manager", "manager.manager"]
SECONDS = 0.2
TRIES = 5


def modules_after(statement: str) -> set[str]:
    """Which top-level modules a fresh interpreter has loaded after *statement*."""
    program = f"import sys, json; {statement}; print(json.dumps(list(sys.modules)))"
    loaded: list[str] = json.loads(run(program))
    return {name.partition(".")[0] for name in loaded}


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
def test_importing_the_package_costs_next_to_no_cpu() -> None:
    assert cpu_seconds_of("import snapshot_plugin") < SECONDS


@pytest.mark.requirement("STORE-IMPORT-CORE")
@pytest.mark.parametrize("module", CORE)
def test_no_part_of_the_core_loads_a_protocol_or_a_web_framework(module: str) -> None:
    assert modules_after(f"import snapshot_plugin.{module}") & FOREIGN == set()


@pytest.mark.requirement("STORE-IMPORT-CORE")
def test_using_every_public_name_loads_no_protocol_and_no_web_framework() -> None:
    everything = "import snapshot_plugin as s; [getattr(s, name) for name in s.__all__]"
    assert modules_after(everything) & FOREIGN == set()


def test_a_heavy_module_that_is_loaded_would_be_noticed() -> None:
    assert modules_after("import pydantic") & HEAVY == {"pydantic"}
