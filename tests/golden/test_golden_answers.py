"""Golden answers: what commands, MCP tools and the bridge answer on a fixed store, as files reviewed like code.

A redesign may not change them, except on purpose and with a line in the changelog. To write them again after such a
change, and then read the difference::

    GOLDEN_ANSWERS=write pytest tests/golden/test_golden_answers.py -n0

``answers/cli/NAME.txt`` is what a command writes (stdout, stderr, exit code), ``NAME.json`` what ``--json`` prints.
Ids that are made during a run, places, the machine and the time of day are replaced (`answered.py`).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from mcp import Client

from snapshot_plugin import FilesystemStore, SnapshotConfig
from snapshot_plugin.cli import COMMANDS, main
from snapshot_plugin.cli.commands.setup import schemas
from snapshot_plugin.memory import ProjectMemory
from snapshot_plugin.memory.server.serve import MemoryServer
from snapshot_plugin.memory.server.tools import ServedProject
from snapshot_plugin.operations.work import Work
from tests import forkserver
from tests.golden.answered import NOW, Frozen, Scrubber, fill, pretty

ANSWERS = Path(__file__).parent / "answers"
WRITE = os.environ.get("GOLDEN_ANSWERS") == "write"


class Case(NamedTuple):
    """Commands that are run one after the other; the answer to the last one is kept."""

    name: str
    commands: tuple[str, ...]
    has_json: bool = True


def _case(name: str, *commands: str, has_json: bool = True) -> Case:
    return Case(name, commands, has_json)


_BUNDLE = "export fix-auth-0001 -o theirs.asnap"
_FORGET = "forget branch-two-0003 --yes"
CASES = (
    # Find
    _case("list", "list --all"),
    _case("list-why", "list --why"),
    _case("list-tree", "list --all --tree"),
    _case("list-ids", "list --all --ids", has_json=False),
    _case("list-tag", "list --all --tag backend"),
    _case("list-here", "list"),
    _case("show", "show fix-auth-0001"),
    _case("show-history", "show fix-auth-0001 --history"),
    _case("show-snapshot", "show fix-auth-0001@1"),
    _case("show-message", "show fix-auth-0001 --message 2"),
    _case("show-damaged", "show damaged-0005"),
    _case("show-unknown", "show nobody"),
    _case("show-ambiguous", "show branch"),
    _case("search", "search walrus"),
    _case("search-nothing", "search penguin"),
    _case("stats", "stats"),
    _case("stats-by-agent", "stats --by agent"),
    _case("why", "why fix-auth-0001"),
    _case("diff", "diff fix-auth-0001 branch-one-0002"),
    _case("diff-snapshots", "diff fix-auth-0001@1 fix-auth-0001@2"),
    _case("resume-print", "resume fix-auth-0001 --print"),
    _case("resume-print-imported", f"{_BUNDLE}", "import theirs.asnap --as theirs", "resume theirs --print"),
    _case("resume-without-command", "resume has-a-secret-0004 --print"),
    # Change
    _case("rename", "rename fix-auth-0001 'The login'"),
    _case("rename-to-a-reference", "rename fix-auth-0001 latest"),
    _case("tag", "tag fix-auth-0001 urgent"),
    _case("tag-suggestions", "tag fix-auth-0001"),
    _case("pin", "pin fix-auth-0001"),
    _case("note", "note fix-auth-0001 'waits for the review'"),
    _case("fork", "fork fix-auth-0001 --messages 2 --title 'Another way'"),
    _case("merge", "merge branch-one-0002 branch-two-0003 --title Both"),
    _case("forget", _FORGET),
    _case("forget-unconfirmed", "forget branch-two-0003"),
    _case("forget-plan", "forget --all --keep-last 1 --dry-run"),
    _case("undo", _FORGET, "undo"),
    _case("undo-nothing", "undo"),
    _case("purge", _FORGET, "purge --yes"),
    _case("purge-plan", _FORGET, "purge --dry-run"),
    # Share
    _case("export-bundle", _BUNDLE),
    _case("export-markdown", "export fix-auth-0001 --format markdown", has_json=False),
    _case("export-json", "export fix-auth-0001 --format json", has_json=False),
    _case("import", _BUNDLE, "import theirs.asnap --as theirs"),
    _case("import-again", _BUNDLE, "import theirs.asnap"),
    _case("import-plan", _BUNDLE, "import theirs.asnap --as theirs --dry-run"),
    _case("secrets-scan", "secrets scan"),
    _case("secrets-fix", "secrets scan --all --fix --yes"),
    # Operate
    _case("snapshot", "snapshot --all"),
    _case("recover", "recover"),
    _case("check", "check"),
    _case("check-good", "check fix-auth-0001"),
    _case("migrate", "migrate --dry-run"),
    # Set up
    _case("keys-status", "keys status"),
    _case("config", "config show --origin"),
    _case("paths", "paths"),
    _case("help-refs", "help refs", has_json=False),
    _case("help-policies", "help policies", has_json=False),
    _case("help-exit-codes", "help exit-codes", has_json=False),
)
_FORMS = [(case, form) for case in CASES for form in (("txt", "json") if case.has_json else ("txt",))]
_WIDE = {"config", "paths"}
"""They show places, which are cut on a narrow terminal; how much is left depends on the place."""
_NOT_HERE = {
    "run": "speaks ACP: the transcripts of the host suite",
    "chat": "needs a terminal: tests/cli/test_chat.py",
    "demo": "plays in real time: tests/cli/test_demo.py",
    "mcp": "below: tools and answers",
    "serve": "below: the messages of the bridge",
    "ui": "a server: tests/web",
    "archive": "needs a bucket: tests/cli/test_archive.py",
    "doctor": "says what this machine is: tests/cli/test_doctor.py",
    "schema": "below: the schema of every answer",
    "completion": "is click's own script",
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the fixed store, to be copied."""
    home = tmp_path_factory.mktemp("golden")
    anyio.run(fill, home / "data" / "asnap" / "store")
    return home


@pytest.fixture
def home(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of a user who has that store, and whose clock stands still."""
    place = tmp_path / "home"
    shutil.copytree(filled, place)
    for name in [name for name in os.environ if name.startswith(("ASNAP_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name in ("DATA", "CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(place / name.lower()))
    (place / "here").mkdir()
    monkeypatch.chdir(place / "here")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TZ", "UTC")
    for module in ("cli.call", "store.filesystem"):
        monkeypatch.setattr(f"snapshot_plugin.{module}.datetime", Frozen)
    time.tzset()
    yield place
    monkeypatch.undo()
    time.tzset()


def compare(name: str, content: str) -> None:
    """Compare with the golden file of this name; write it if that is wanted."""
    file = ANSWERS / name
    if WRITE:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, "utf-8")
    assert file.exists(), f"{name} is missing; see the module's docstring"
    assert content == file.read_text("utf-8")


def _ran(words: Sequence[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize(("case", "form"), _FORMS, ids=lambda part: getattr(part, "name", part))
def test_command_answers_as_it_always_did(
    case: Case,
    form: str,
    home: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scrub = Scrubber(home)
    *before, last = case.commands
    for line in before:
        assert _ran(shlex.split(line), capfd)[0] == 0, line
    if case.name in _WIDE:
        monkeypatch.setenv("COLUMNS", "400")
    code, out, err = _ran([*shlex.split(last), *(["--json"] if form == "json" else [])], capfd)
    if form == "json":
        document = json.loads(out or err.splitlines()[-1])
        compare(f"cli/{case.name}.json", scrub(pretty(document)))
    else:
        told = f"$ asnap {last}\n{out}" + (f"[stderr]\n{err}" if err else "") + f"[exit {code}]\n"
        compare(f"cli/{case.name}.txt", scrub(told))


def test_every_command_has_a_golden_answer_or_a_reason() -> None:
    covered = {case.commands[-1].split()[0] for case in CASES}

    assert covered | set(_NOT_HERE) == set(COMMANDS)
    assert covered.isdisjoint(_NOT_HERE)


def test_no_golden_answer_is_left_over() -> None:
    kept = {file.name for file in (ANSWERS / "cli").iterdir()}

    assert kept == {f"{case.name}.{form}" for case, form in _FORMS}


@pytest.mark.parametrize("name", sorted(schemas()))
def test_schema_of_an_answer_is_as_it_always_was(name: str) -> None:
    compare(f"schemas/{name.replace(' ', '-')}.json", pretty(schemas()[name]))


# MCP --------------------------------------------------------------------------------------------------------------

_CALLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("list_snapshots", "list_snapshots", {}),
    ("search_sessions", "search_sessions", {"query": "walrus"}),
    ("show_session", "show_session", {"session_id": "fix-auth-0001"}),
    ("show_session-part", "show_session", {"session_id": "fix-auth-0001", "at": 1, "limit": 1}),
    ("show_session-unknown", "show_session", {"session_id": "nobody"}),
    ("take_snapshot-not-live", "take_snapshot", {"session_id": "fix-auth-0001"}),
    ("resume_plan", "resume_plan", {"session_id": "fix-auth-0001"}),
)


def _tool(tool: Any) -> dict[str, Any]:
    hints = tool.annotations.model_dump(exclude_none=True) if tool.annotations else {}
    about = {"name": tool.name, "title": tool.title, "description": tool.description, "annotations": hints}
    return {**about, "input_schema": tool.input_schema, "output_schema": tool.output_schema}


def test_mcp_tools_and_answers_about_sessions_are_as_they_always_were(home: Path) -> None:
    async def asked() -> None:
        scrub = Scrubber(home)
        store = FilesystemStore(home / "data" / "asnap" / "store", create=False, background=False)
        memory = ProjectMemory(home / "here", state=home / "state")
        work = Work(SnapshotConfig(), os.environ, NOW)
        served = ServedProject(memory.place, store, work, memory=memory, all_projects=True)
        async with store, memory, Client(MemoryServer(served)) as client:
            for tool in (await client.list_tools()).tools:
                compare(f"mcp/tools/{tool.name}.json", scrub(pretty(_tool(tool))))
            for name, tool_name, arguments in _CALLS:
                result = await client.call_tool(tool_name, arguments)
                # Not the text as well: it is the same, and JSON inside JSON cannot be reviewed.
                told = dict(result.meta or {}).get("asnap/error") if result.is_error else result.structured_content
                compare(f"mcp/answers/{name}.json", scrub(pretty({"call": arguments, "answer": told})))

    anyio.run(asked)


# The bridge ------------------------------------------------------------------------------------------------------

_REQUESTS: tuple[dict[str, Any], ...] = (
    {"type": "session_state", "id": 1},
    {"type": "session_list", "limit": 2},
    {"type": "session_create", "title": "From a front end"},
    {"type": "session_message", "messages": [{"role": "user", "content": "Hello."}]},
    {"type": "session_save"},
    {"type": "session_load", "session_id": "fix-auth-0001", "limit": 1},
    {"type": "session_export", "session_id": "fix-auth-0001", "format": "markdown"},
    {"type": "session_delete", "session_id": "branch-two-0003"},
    {"type": "session_delete", "session_id": "nobody"},
    {"type": "session_clear"},
    {"type": "session_save"},
    {"type": "no_such_request"},
)


def test_bridge_answers_as_it_always_did(home: Path) -> None:
    line = [sys.executable, "-m", "snapshot_plugin", "serve", "--stdio"]
    sent = "".join(json.dumps(request) + "\n" for request in _REQUESTS)
    done = forkserver.run(line, input=sent, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(answer) for answer in done.stdout.splitlines()]
    pairs = [{"request": request, "answer": answer} for request, answer in zip(_REQUESTS, answers, strict=True)]
    compare("ipc/conversation.json", Scrubber(home)(pretty(pairs)))
