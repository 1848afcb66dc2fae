"""What the model takes in, adds up and refuses where a program makes a value."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from snapshot_plugin import InvalidSnapshot, Message, SessionSnapshot
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model import AgentInfo, McpServer, Metrics, SessionConfig, ToolCallBlock
from snapshot_plugin.model.withheld import is_credential

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = THEN + timedelta(days=300)
TOKEN = "s3cr3t-value-nobody-may-see"


def session(**fields: Any) -> SessionSnapshot:
    return SessionSnapshot(**{"session_id": "s", "created_at": THEN, "updated_at": THEN, **fields})


# Keywords -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "meant"),
    [
        (lambda: session(acp_session_id="x"), "agent_session_id"),
        (lambda: session(titel="x"), "title"),
        (lambda: session().evolve(messags=()), "messages"),
        (lambda: session().append(Message(role="user"), titel="x"), "title"),
        (lambda: Message(role="user", contents="x"), "content"),  # type: ignore[call-arg]
        (lambda: SessionConfig(working_dir="/"), "cwd"),  # type: ignore[call-arg]
        (lambda: Metrics(total_token=1), "total_tokens"),
        (lambda: AgentInfo(nane="x"), "name"),
        (lambda: session(config={"modle": "x"}), "mode"),
        (lambda: session().evolve(config={"working_dir": "/"}), "cwd"),
        (lambda: session(messages=[{"role": "user"}, {"role": "user", "contnt": "x"}]), "content"),
        (lambda: session(metrics={"total_token": 1}), "total_tokens"),
    ],
)
def test_unknown_keyword_is_refused(make: Any, meant: str) -> None:
    with pytest.raises(InvalidSnapshot) as refused:
        make()

    assert "no field" in refused.value.message
    assert meant in (refused.value.hint or "")


def test_typo_in_a_dict_is_reported_with_its_path() -> None:
    with pytest.raises(InvalidSnapshot, match=r"^SessionSnapshot\.messages\[1\] has no field 'contnt'"):
        session(messages=[{"role": "user"}, {"role": "user", "contnt": "x"}])


@pytest.mark.parametrize(
    "make", [lambda n: session(metrics={"total_tokens": n}), lambda n: Metrics(total_tokens=n)]
)
def test_counts_beyond_64_bits_are_refused(make: Any) -> None:
    assert make(2**63 - 1)
    with pytest.raises(InvalidSnapshot, match=r"total_tokens is out of range"):
        make(10**400)


def test_unknown_fields_of_stored_data_are_kept() -> None:
    raw = {**session().raw(), "from_the_future": [1], "config": {"new": {"a": 1}}}
    read = load_document({**raw, "version": 2})

    assert json.loads(json.dumps(read.raw()))["from_the_future"] == [1]
    assert read.evolve(title="t", from_the_future=[2]).raw()["from_the_future"] == [2]
    assert read.config.raw()["new"] == {"a": 1}


# Appending ----------------------------------------------------------------------------------------------------


def test_appending_stamps_the_session_and_adds_up_tokens() -> None:
    asked = Message(role="user", content="a", token_count=3)
    answered = Message(role="assistant", content="b", token_count=40, token_count_estimated=True)
    grown = session(metrics=Metrics(total_tokens=5, turns=2)).append(asked, answered, now=NOW)

    assert grown.updated_at == NOW
    assert grown.metrics == Metrics(turns=2, total_tokens=48, input_tokens=3, output_tokens=40, estimated_tokens=40)


def test_append_uses_the_current_time_and_never_goes_back() -> None:
    assert session().append(Message(role="user", content="a")).updated_at > NOW - timedelta(days=400)
    ahead = session(updated_at=NOW).append(Message(role="user", content="a"), now=THEN)
    assert ahead.updated_at == NOW


def test_append_keeps_what_the_caller_sets() -> None:
    message = Message(role="user", content="a", token_count=3)
    grown = session().append(message, updated_at=THEN, metrics=Metrics(total_tokens=9))

    assert (grown.updated_at, grown.metrics.total_tokens) == (THEN, 9)
    assert session().append(title="t").updated_at == THEN


# Tool calls ---------------------------------------------------------------------------------------------------

ARGUMENTS = {"path": "/tmp", "deep": [1, None]}
SHAPES = {
    "openai": {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": json.dumps(ARGUMENTS)}},
    "anthropic": {"type": "tool_use", "id": "c1", "name": "ls", "input": ARGUMENTS},
    "langchain": {"name": "ls", "args": ARGUMENTS, "id": "c1", "type": "tool_call"},
    "acp": {"toolCallId": "c1", "title": "ls", "rawInput": ARGUMENTS, "status": "completed", "kind": "read"},
    "ours": ToolCallBlock(tool_call_id="c1", title="ls", raw_input=ARGUMENTS),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_tool_calls_of_other_libraries_are_accepted(shape: str) -> None:
    message = Message(role="assistant", content="Let me look.", tool_calls=[SHAPES[shape]])

    call = message.content[1]
    assert isinstance(call, ToolCallBlock)
    assert (call.tool_call_id, call.title, call.raw_input) == ("c1", "ls", ARGUMENTS)
    assert message.text == "Let me look."


def test_tool_calls_in_dict_messages_are_accepted() -> None:
    said = {"role": "assistant", "content": "Let me look.", "tool_calls": [SHAPES["openai"]]}

    for made in (session(messages=[said]), session().evolve(messages=[said])):
        assert made.messages == (Message(role="assistant", content="Let me look.", tool_calls=[SHAPES["openai"]]),)


@pytest.mark.parametrize("arguments", ['{"x": NaN}', "[" * 100_000, "[" * 200 + "]" * 200, "1" * 5000, "ls -l"])
def test_arguments_that_are_not_json_that_a_snapshot_can_hold_stay_text(arguments: str) -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    block = Message(role="assistant", tool_calls=[call]).content[0]

    assert isinstance(block, ToolCallBlock)
    assert block.raw_input == arguments


@pytest.mark.parametrize("calls", [[{"tool": "ls"}], ["ls"], "ls", {"id": "1"}, [{"name": "ls"}], 7])
def test_tool_calls_of_an_unknown_shape_are_refused(calls: Any) -> None:
    with pytest.raises(InvalidSnapshot, match="tool_calls"):
        Message(role="assistant", tool_calls=calls)


@pytest.mark.parametrize("name", ["tool_call_id", "toolCallId", "tool_use_id"])
def test_tool_result_names_its_call(name: str) -> None:
    given: dict[str, Any] = {"role": "tool", "content": "42", name: "c1"}
    message = Message(**given)

    assert message.metadata["tool_call_id"] == "c1"


def test_message_may_have_tool_calls_none() -> None:
    assert Message(role="assistant", content="x", tool_calls=None) == Message(role="assistant", content="x")


# Secrets ------------------------------------------------------------------------------------------------------

CONFIG = {
    "environment": {"API_KEY": TOKEN, "PATH": TOKEN},
    "env": [{"name": "HOME", "value": TOKEN}, f"SHELL={TOKEN}"],
    "custom": {"openaiApiKey": TOKEN, "nested": [{"env": {"A": TOKEN}}]},
    "options": {
        "api_key": TOKEN,
        "args": ["--token", TOKEN, f"--api-key={TOKEN}", "--verbose", "file"],
        "credentials": {"user": "me", "value": TOKEN},
        "effort": "high",
        "env": f"A={TOKEN}\nB={TOKEN}",
        "provider": {"headers": {"Authorization": TOKEN}},
    },
    "mcp_servers": [
        {"name": "git", "env": {"X": TOKEN}, "headers": {"Y": TOKEN}, "auth_token": TOKEN},
        {"name": "web", "url": f"https://me:{TOKEN}@example.org/mcp?team=a&access_token={TOKEN}"},
    ],
    "cwd": "/work",
}


@pytest.mark.requirement("ORBIT-SECURITY-ENVIRONMENT", "ONERING-CARE-CREDENTIALS")
@pytest.mark.parametrize(
    "make",
    [
        lambda: session(config=CONFIG, agent={"name": "a", "env": {"X": TOKEN}}),
        lambda: session().evolve(config=CONFIG),
        lambda: SessionSnapshot.model_validate({**session().raw(), "config": CONFIG}),
        lambda: load_document({**session().raw(), "version": 1, "config": dict(CONFIG)}),
        lambda: session(config=SessionConfig(options=CONFIG["options"], permissions={"password": TOKEN})),  # type: ignore[arg-type]
        lambda: session(config=SessionConfig().evolve(options=CONFIG["options"])),
    ],
)
def test_environment_values_and_credentials_never_enter_a_snapshot(make: Any) -> None:
    made: SessionSnapshot = make()

    assert TOKEN not in json.dumps(made.raw())
    assert made.config.options["effort"] == "high"
    assert "options.api_key" in made.config.withheld or "options.openaiApiKey" in made.config.withheld
    assert "api_key" in made.notices[0].lower() or "ApiKey" in made.notices[0]


def test_names_of_withheld_values_are_kept() -> None:
    assert session(config=CONFIG).config.withheld == (
        "custom.nested[0].env.A",
        "custom.openaiApiKey",
        "env.HOME",
        "env.SHELL",
        "environment.API_KEY",
        "environment.PATH",
        "options.api_key",
        "options.args.--api-key",
        "options.args.--token",
        "options.credentials",
        "options.env.A",
        "options.env.B",
        "options.provider.headers.Authorization",
    )


def test_text_around_a_secret_is_kept() -> None:
    config = session(config=CONFIG).config

    assert config.options["args"] == ["--token", "--api-key", "--verbose", "file"]
    assert config.mcp_servers[1].raw()["url"] == "https://example.org/mcp?team=a"


def test_tool_parameters_may_have_credential_names() -> None:
    schema = {"properties": {"password": {"type": "string", "description": "what was sent by mail"}}}

    assert session(config={"tools": {"login": schema}}).config.tools["login"] == schema


def test_session_without_secrets_reports_nothing_withheld() -> None:
    plain = session(config={"options": {"max_tokens": 9, "eos_token": "</s>", "key": "c#"}, "cwd": "/"})

    assert (plain.config.withheld, plain.notices) == ((), ())
    assert plain.config.options == {"max_tokens": 9, "eos_token": "</s>", "key": "c#"}


@pytest.mark.parametrize(
    "name",
    ["api_key", "X-Api-Key", "OPENAI_API_KEY", "githubToken", "db.password", "secret", "PGPASSWORD", "cookie"],
)
def test_credential_names_are_recognised(name: str) -> None:
    assert is_credential(name, TOKEN)
    assert not is_credential(name, "${FROM_ELSEWHERE}")
    assert not is_credential(name, 7)


@pytest.mark.parametrize("name", ["tokens", "token_limit", "keyboard", "primary_key", "stop_token"])
def test_other_names_are_not_credentials(name: str) -> None:
    assert not is_credential(name, TOKEN)


def test_mcp_server_keeps_non_secret_fields() -> None:
    server = McpServer(name="git", url="https://example.org", headers={"A": TOKEN})

    assert server.raw() == {"name": "git", "type": "stdio", "url": "https://example.org"}


@pytest.mark.parametrize(
    ("given", "kept", "names"),
    [
        (("agent", "--api-key", "sk-1", "--acp"), ("agent", "--api-key", "<withheld>", "--acp"), ("--api-key",)),
        (("agent", "--api-key=sk-1"), ("agent", "--api-key=<withheld>"), ("--api-key",)),
        (("env", "FOO_TOKEN=sk-1", "agent"), ("env", "FOO_TOKEN=<withheld>", "agent"), ("FOO_TOKEN",)),
        (
            ("sh", "-c", "FOO_TOKEN=sk-1 exec agent --api-key 'sk-1' --model m"),
            ("sh", "-c", "FOO_TOKEN=<withheld> exec agent --api-key <withheld> --model m"),
            ("FOO_TOKEN", "--api-key"),
        ),
        (("agent", "https://me:sk-1@host/x"), ("agent", "https://<withheld>@host/x"), ("https://",)),
        (
            ("agent", "--token", "$TOKEN", "--max-tokens", "5"),
            ("agent", "--token", "$TOKEN", "--max-tokens", "5"),
            (),
        ),
    ],
)
def test_secrets_in_the_command_of_an_agent_are_not_kept_and_their_names_are_told(
    given: tuple[str, ...], kept: tuple[str, ...], names: tuple[str, ...]
) -> None:
    made = session(agent=AgentInfo(command=given))

    assert made.agent is not None
    assert (made.agent.command, made.agent.withheld) == (kept, names)
    assert SessionSnapshot.model_validate(made.raw()).agent == made.agent
    assert made.notices == ((f"not kept, as they may be secrets: {', '.join(names)}",) if names else ())


@pytest.mark.parametrize("word", ["w" * 1_000_000, "a=" * 500_000, "w" * 1_000_000 + " and more", "A_-." * 250_000])
def test_a_long_word_in_the_command_of_an_agent_is_no_work(word: str) -> None:
    made = session(agent=AgentInfo(command=["agent", word, "--api-key", TOKEN]))

    assert made.agent
    assert made.agent.command == ("agent", word, "--api-key", "<withheld>")
    assert len(made.notices) == 1
    assert "--api-key" in made.notices[0]
