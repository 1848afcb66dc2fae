from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import InvalidInput, InvalidSnapshot, InvalidSnapshotVersion, MemoryStore, SessionSnapshot
from snapshot_plugin.exchange.reading import FORMATS, read_sessions
from snapshot_plugin.exchange.rendering import document_of
from snapshot_plugin.model import ResourceLinkBlock, ThoughtBlock, ToolCallBlock, UnknownBlock
from snapshot_plugin.store.transfer import verified
from snapshot_plugin.testing import make_snapshot
from tests.exchange.sessions import NOW
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.tries import some_of

pytestmark = pytest.mark.anyio
FILES = Path(__file__).parent / "files"
GOLDEN = Path(__file__).parents[1] / "golden/documents"


async def read(name: str, wanted: str | None = None) -> tuple[str, SessionSnapshot]:
    found = await read_sessions((FILES / name).read_bytes(), now=NOW, wanted=wanted)
    (copies,) = found.sessions
    return found.format, verified(copies)


def calls(snapshot: SessionSnapshot) -> dict[str, tuple[str | None, Any, Any]]:
    blocks = [
        block for message in snapshot.messages for block in message.content if isinstance(block, ToolCallBlock)
    ]
    return {block.tool_call_id: (block.status, block.raw_input, block.raw_output) for block in blocks}


async def test_claude_code_session_is_read() -> None:
    form, session = await read("claude-code.jsonl")

    assert form == "claude-code"
    assert session.session_id == session.agent_session_id == "5f0c7a52-0d3e-4a57-9a53-0f6f8f2b9c11"
    assert session.title == "Tabs in the parser"
    assert (session.config.cwd, session.config.model) == ("/home/ann/parser/src", "claude-sonnet-4-5")
    assert session.agent is not None
    assert session.agent.version == "2.0.15"
    assert session.created_at == datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)
    said = [(message.role, message.text) for message in session.messages]
    assert said == [
        ("user", "Why does it choke on tabs?"),
        ("assistant", "I will look."),
        ("assistant", "It is the lexer."),
    ]
    assert session.messages[1].content[0] == ThoughtBlock(text="Look at the lexer.", signature="c2ln")
    assert calls(session) == {
        "toolu_1": ("completed", {"file_path": "/home/ann/parser/lexer.py"}, "def lex(): …"),
        "toolu_2": ("failed", {"command": "false"}, "Exit code 1"),
    }
    metrics = session.metrics
    assert (metrics.turns, metrics.input_tokens, metrics.output_tokens, metrics.total_tokens) == (1, 225, 50, 275)


async def test_every_entry_of_a_claude_code_file_is_kept() -> None:
    _, session = await read("claude-code.jsonl")
    kept = json.dumps(document_of(session))

    for part in (
        "You are a sub-agent",
        "A branch that was left",
        "trackedFileBackups",
        "turn_duration",
        "numLines",
        "req_2",
    ):
        assert part in kept
    assert session.messages[0].metadata["claude_code"]["gitBranch"] == "main"


async def test_sub_agent_messages_are_not_the_conversation() -> None:
    data = (FILES / "claude-code.jsonl").read_bytes()
    (aside,) = [line for line in data.splitlines() if b"sub-agent" in line]
    found = await read_sessions(data + aside.replace(b"s-1", b"s-2") + b"\n", now=NOW)
    _, session = await read("claude-code.jsonl")

    assert verified(found.sessions[0]).messages == session.messages


async def test_codex_rollout_is_read() -> None:
    form, session = await read("codex.jsonl")

    assert form == "codex"
    assert session.session_id == "0195c1b2-7a10-7f3c-8d11-2b1f6f0e8a77"
    config = session.config
    assert (config.cwd, config.model, config.instructions) == ("/home/ann/shop", "gpt-5-codex", "Be brief.")
    assert [(message.role, message.text) for message in session.messages] == [
        ("system", "<permissions>"),
        ("user", "Run the tests"),
        ("assistant", "All pass."),
    ]
    assert isinstance(session.messages[2].content[0], ThoughtBlock)
    assert session.messages[2].content[0].text == "**Running tests**"
    assert calls(session) == {
        "call_1": ("completed", {"command": ["pytest"]}, {"output": "2 passed", "metadata": {"exit_code": 0}}),
        "call_2": ("failed", "*** Begin Patch", {"content": "no", "success": False}),
    }
    assert (session.metrics.total_tokens, session.metrics.turns) == (1280, 1)
    assert session.created_at == datetime(2026, 3, 2, 8, 59, 59, 900_000, tzinfo=UTC)


async def test_unknown_codex_entries_are_kept_verbatim() -> None:
    _, session = await read("codex.jsonl")

    assert [line["payload"]["type"] for line in session.metadata["codex"]["lines"]] == ["something_new"]
    unknown = [
        block.type for message in session.messages for block in message.content if isinstance(block, UnknownBlock)
    ]
    assert unknown == ["input_image", "ghost_snapshot"]
    assert session.metadata["codex"]["turn_context"]["approval_policy"] == "on-request"
    assert session.metadata["codex"]["session_meta"]["git"] == {"branch": "main"}


async def test_older_codex_rollout_is_read() -> None:
    form, session = await read("codex-old.jsonl")

    assert form == "codex"
    assert [(message.role, message.text) for message in session.messages] == [
        ("user", "hello"),
        ("assistant", "hi"),
    ]
    assert calls(session) == {"call_9": ("completed", "not json", "plain")}
    assert session.metadata["codex"]["lines"] == [{"record_type": "state"}]


async def test_opencode_export_is_read() -> None:
    form, session = await read("opencode.json")

    assert form == "opencode"
    assert (session.session_id, session.title) == ("ses_4f1e2d3c", "Dark mode")
    assert (session.config.cwd, session.config.model) == ("/home/ann/site", "claude-sonnet-4-5")
    assert [(message.role, message.text) for message in session.messages] == [
        ("user", "Add dark mode"),
        ("assistant", "Done."),
    ]
    assert session.messages[0].content[1] == ResourceLinkBlock(
        uri="file:///home/ann/site/a.css", name="a.css", mime_type="text/css"
    )
    assert calls(session) == {
        "toolu_7": ("completed", {"filePath": "a.css"}, "ok"),
        "toolu_8": ("failed", {"command": "x"}, "no such command"),
    }
    metrics = session.metrics
    assert (metrics.input_tokens, metrics.output_tokens, metrics.total_tokens, metrics.cost) == (
        1207,
        100,
        1307,
        0.0125,
    )
    assert session.messages[1].timestamp == datetime(2026, 3, 1, 9, 0, 1, tzinfo=UTC)
    kept = json.dumps(document_of(session))
    assert "step-finish" in kept
    assert '"diff": "+x"' in kept


@pytest.mark.parametrize(
    ("file", "form"),
    [
        ("openagent-parser/v0.json", "openagent"),
        ("oneringai-librarian/v0.json", "oneringai"),
        ("orbit-refactor/v1.json", "json"),
        ("current-everything/v2.json", "json"),
    ],
)
async def test_every_document_the_chain_migrates_is_recognised(file: str, form: str) -> None:
    data = (GOLDEN / file).read_bytes()
    newest = (GOLDEN / file).with_name("v2.json")
    for wanted in (None, form):
        found = await read_sessions(data, now=NOW, wanted=wanted)
        assert found.format == form
        assert verified(found.sessions[0]) == SessionSnapshot.model_validate_json(newest.read_bytes())


async def test_exported_json_round_trips() -> None:
    snapshots = [make_snapshot("a", session_id="a"), make_snapshot("b", "c", session_id="b", title="T")]
    text = json.dumps([document_of(snapshot) for snapshot in snapshots])
    found = await read_sessions(text.encode(), now=NOW)

    assert [verified(copies) for copies in found.sessions] == snapshots


async def test_same_file_gives_the_same_session() -> None:
    async with MemoryStore() as store:
        for _ in range(2):
            assert (await read("codex.jsonl"))[1] == (await read("codex.jsonl"))[1]
        assert await store.list() == []


BAD: list[tuple[bytes, type[Exception]]] = [
    (b"", InvalidInput),
    (b"  \n", InvalidInput),
    (bytes(range(256)), InvalidInput),
    (b"\x1f\x8b\x08\x00rest", InvalidInput),
    (b"just words", InvalidSnapshot),
    (b"{", InvalidSnapshot),
    (b"[" * 100_000, InvalidSnapshot),
    (b'{"a":' * 100_000, InvalidSnapshot),
    (b'{"version": NaN}', InvalidSnapshot),
    (b"[]", InvalidInput),
    (b"[1]", InvalidSnapshot),
    (b'"text"', InvalidSnapshot),
    (b"{}", InvalidSnapshot),
    (b'{"x":1}\n{"y":2}\n', InvalidInput),
    (b'{"x":1}\nnot json\n{"y":2}\n', InvalidSnapshot),
    (b'{"version":3,"session_id":"x"}', InvalidSnapshotVersion),
    (b'{"version":2,"session_id":"x","created_at":"never"}', InvalidSnapshot),
    (
        b'{"version":2,"session_id":"..","created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}',
        InvalidInput,
    ),
    (b'{"type":"session_meta","payload":{"cwd":"/"}}\n', InvalidSnapshot),
    (b'{"type":"user","sessionId":"s","uuid":"u"}\n{"type":"user","sessionId":"s","uuid":"v"}\n', InvalidSnapshot),
    (
        b'{"type":"user","sessionId":7,"uuid":"u","timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","content":"x"}}\n',
        InvalidSnapshot,
    ),
    (b'{"info":{"id":"s"},"messages":[{"info":{"role":"robot"},"parts":[]}]}', InvalidSnapshot),
    (b'{"info":{"id":"s"},"messages":[]}', InvalidSnapshot),
    (b'{"metadata":{"session_id":"s"},"messages":[],"deep":' + b'{"a":' * 700 + b"1" + b"}" * 701, InvalidSnapshot),
]


@pytest.mark.parametrize(("data", "error"), BAD, ids=range(len(BAD)))
async def test_bad_files_are_refused_with_a_clear_message(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        await read_sessions(data, now=NOW)


@pytest.mark.parametrize("name", ["claude-code.jsonl", "codex.jsonl", "codex-old.jsonl", "opencode.json"])
async def test_file_truncated_anywhere_gives_a_session_or_a_refusal(name: str) -> None:
    data = (FILES / name).read_bytes()
    for length in range(0, len(data), 97):
        try:
            found = await read_sessions(data[:length], now=NOW)
        except (InvalidInput, InvalidSnapshotVersion):
            continue
        assert verified(found.sessions[0]).session_id


async def test_unfinished_last_line_is_dropped() -> None:
    data = (FILES / "codex.jsonl").read_bytes() + b'{"timestamp":"2026-03-02T09:0'
    found = await read_sessions(data, now=NOW)
    assert verified(found.sessions[0]) == (await read("codex.jsonl"))[1]


@pytest.mark.parametrize("wanted", [name for name in FORMATS if name != "codex"])
async def test_file_of_another_format_than_given_is_refused(wanted: str) -> None:
    with pytest.raises((InvalidInput, InvalidSnapshot)):
        await read("codex.jsonl", wanted)


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside *value*."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        yield (*path, name)
        yield from places(each, *path, name)


STRANGE: tuple[Any, ...] = (None, 7, ["x"], {})


def with_one_changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    changed = copy.deepcopy(value)
    holder = changed
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = new
    return changed


@pytest.mark.parametrize("name", ["claude-code.jsonl", "codex.jsonl", "codex-old.jsonl", "opencode.json"])
def test_unexpected_value_anywhere_gives_a_session_or_a_refusal(name: str) -> None:
    text = (FILES / name).read_text("utf-8")
    is_lines = name.endswith("l")
    document = [json.loads(line) for line in text.splitlines()] if is_lines else json.loads(text)

    async def try_all() -> None:
        for path in some_of(places(document)):
            for strange in STRANGE:
                changed = with_one_changed(document, path, strange)
                lines = changed if is_lines else [changed]
                with suppress(InvalidInput, InvalidSnapshotVersion):
                    await read_sessions("\n".join(map(json.dumps, lines)).encode(), now=NOW)

    anyio.run(try_all)
