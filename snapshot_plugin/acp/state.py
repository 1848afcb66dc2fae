"""What a session is beside its words: setup, agent, plan, mode, options, commands, title, usage; its turns.

Pure functions from a snapshot and a piece of the protocol to the next snapshot. Malformed input changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.snapshot import AgentInfo, McpServer, Message, PlanEntry, SessionSnapshot

__all__ = [
    "HISTORY",
    "STATE_UPDATES",
    "ContextWindow",
    "Turn",
    "agent_names",
    "context_window",
    "expected_grade",
    "last_restore",
    "noted",
    "settled_tools",
    "stored_setup",
    "told_messages",
    "turns",
    "was_cut_off",
    "was_interrupted",
    "with_agent",
    "with_config",
    "with_history",
    "with_restored",
    "with_setup",
    "with_usage",
]

HISTORY = "acp-history"
"""The plugin section that holds what an agent itself remembers of the session."""

Raw = dict[str, Any]
_TOKENS = {"total_tokens": "totalTokens", "input_tokens": "inputTokens", "output_tokens": "outputTokens"}


def stored_setup(params: Mapping[str, Any]) -> Raw:
    """What may be written down of the parameters of ``session/new``: of MCP servers the name and the type alone.

    Environment, headers, arguments and addresses hold secrets, and the client sends them anew with every load.
    """
    setup: Raw = {"cwd": params["cwd"]} if isinstance(params.get("cwd"), str) else {}
    if isinstance(directories := params.get("additionalDirectories"), list):
        setup["additionalDirectories"] = [path for path in directories if isinstance(path, str)]
    if isinstance(servers := params.get("mcpServers"), list):
        setup["mcpServers"] = [_words(server, "name", "type") for server in servers if _is_named(server)]
    return setup


def with_setup(snapshot: SessionSnapshot, params: Raw) -> SessionSnapshot:
    """The session was set up like this."""
    setup = stored_setup(params)
    config = snapshot.config.evolve(
        cwd=setup.get("cwd", snapshot.config.cwd),
        additional_directories=tuple(setup.get("additionalDirectories", ())),
        mcp_servers=tuple(McpServer(**server) for server in setup.get("mcpServers", ())),
    )
    return snapshot.evolve(config=config)


def with_agent(snapshot: SessionSnapshot, value: Raw) -> SessionSnapshot:
    """This agent has the session now, under this id."""
    info = value.get("info")
    if isinstance(info, dict):
        command = info.get("command")
        parts = tuple(part for part in command if isinstance(part, str)) if isinstance(command, list) else ()
        snapshot = snapshot.evolve(agent=AgentInfo(command=parts, **_words(info, "name", "version")))
    if isinstance(able := value.get("able"), dict):
        known = {name: able[name] for name in ("load", "resume") if isinstance(able.get(name), bool)}
        snapshot = noted(snapshot, "capabilities", known)
    session_id = value.get("sessionId")
    if not isinstance(session_id, str):
        return snapshot
    names = [name for name in agent_names(snapshot) if name != session_id]
    return noted(snapshot.evolve(agent_session_id=session_id), "names", [*names, session_id] if names else None)


def agent_names(snapshot: SessionSnapshot) -> tuple[str, ...]:
    """Every id under which an agent has had this session, the present one last."""
    names = _acp(snapshot).get("names")
    known = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    now = snapshot.agent_session_id
    return (*(name for name in known if name != now), now) if now is not None else tuple(known)


def told_messages(snapshot: SessionSnapshot) -> int:
    """How many messages a restoration note told the agent, since it began the session anew."""
    told = _acp(snapshot).get("told")
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else 0


def with_restored(snapshot: SessionSnapshot, report: Raw, messages: int) -> SessionSnapshot:
    """The session was brought back like this, with *messages* messages. A note replaces what was told before."""
    snapshot = noted(snapshot, "restored", report)
    return noted(snapshot, "told", messages) if report.get("grade") == "context" else snapshot


def with_config(snapshot: SessionSnapshot, value: Raw) -> SessionSnapshot:
    """A response that brought modes, options, or both."""
    if isinstance(modes := value.get("modes"), dict):
        snapshot = _with_mode(snapshot, modes)
    if isinstance(models := value.get("models"), dict):
        snapshot = _with_model(snapshot, models)
    return _with_options(snapshot, value)


def with_usage(snapshot: SessionSnapshot, usage: Any) -> SessionSnapshot:
    """One turn's tokens, added to the session's."""
    used = {ours: _count(usage.get(wire)) for ours, wire in _TOKENS.items()} if isinstance(usage, dict) else {}
    metrics = snapshot.metrics
    sums = {name: getattr(metrics, name) + count for name, count in used.items() if count is not None}
    return snapshot.evolve(metrics=metrics.evolve(**sums)) if sums else snapshot


def with_history(snapshot: SessionSnapshot, value: Raw, messages: int) -> SessionSnapshot:
    """What the agent itself remembers now; it covers the first *messages* messages of the record."""
    kept = {"value": value, "messages": messages, "agent": snapshot.agent.name if snapshot.agent else None}
    return snapshot.evolve(plugins={**snapshot.plugins, HISTORY: kept})


def noted(snapshot: SessionSnapshot, name: str, value: Any) -> SessionSnapshot:
    """A value under a name in our section of the metadata; None takes it out."""
    acp = {key: kept for key, kept in _acp(snapshot).items() if key != name}
    if value is not None:
        acp[name] = value
    rest = {key: kept for key, kept in snapshot.metadata.items() if key != "acp"}
    return snapshot.evolve(metadata={**rest, "acp": acp} if acp else rest)


def _with_plan(snapshot: SessionSnapshot, update: Raw) -> SessionSnapshot:
    entries = update.get("entries")
    if not isinstance(entries, list):
        return snapshot
    plan = tuple(_entry(entry) for entry in entries if _words(entry, "content"))
    running = next((entry.content for entry in plan if entry.status == "in_progress"), None)
    return snapshot.evolve(plan=plan, current_task=running)


def _entry(raw: Raw) -> PlanEntry:
    known = _words(raw, "content", "priority", "status")
    rest = {key: value for key, value in raw.items() if key not in ("priority", "status")}
    return PlanEntry.model_validate(rest | known)  # an agent may send fields that this release does not know


def _with_commands(snapshot: SessionSnapshot, update: Raw) -> SessionSnapshot:
    commands = update.get("availableCommands")
    return noted(snapshot, "commands", commands) if isinstance(commands, list) else snapshot


def _with_mode(snapshot: SessionSnapshot, modes: Raw) -> SessionSnapshot:
    known = {key: modes[key] for key in ("currentModeId", "availableModes") if modes.get(key) is not None}
    before = _acp(snapshot).get("modes")
    snapshot = noted(snapshot, "modes", {**(before if isinstance(before, dict) else {}), **known})
    mode = modes.get("currentModeId")
    return snapshot.evolve(config=snapshot.config.evolve(mode=mode)) if isinstance(mode, str) else snapshot


def _with_model(snapshot: SessionSnapshot, models: Raw) -> SessionSnapshot:
    """The model by the unstable method that many agents still have."""
    known = {key: models[key] for key in ("currentModelId", "availableModels") if models.get(key) is not None}
    before = _acp(snapshot).get("models")
    snapshot = noted(snapshot, "models", {**(before if isinstance(before, dict) else {}), **known})
    model = models.get("currentModelId")
    return snapshot.evolve(config=snapshot.config.evolve(model=model)) if isinstance(model, str) else snapshot


def _with_options(snapshot: SessionSnapshot, update: Raw) -> SessionSnapshot:
    options = update.get("configOptions")
    if not isinstance(options, list):
        return snapshot
    known = [option for option in options if _words(option, "id")]
    config = snapshot.config.evolve(options={option["id"]: option.get("currentValue") for option in known})
    models = [_words(option, "currentValue") for option in known if option.get("category") == "model"]
    for model in models[:1]:
        config = config.evolve(model=model.get("currentValue", config.model))
    return noted(snapshot.evolve(config=config), "configOptions", options)


def _with_info(snapshot: SessionSnapshot, update: Raw) -> SessionSnapshot:
    before = _acp(snapshot).get("title")
    title = update.get("title", before)
    if title is not None and not isinstance(title, str):
        return snapshot
    is_ours = snapshot.title not in (None, before)  # renamed by a person: that name takes precedence
    noticed = noted(snapshot, "title", title)
    return noticed if is_ours else noticed.evolve(title=title)


def _with_context(snapshot: SessionSnapshot, update: Raw) -> SessionSnapshot:
    used, size = _count(update.get("used")), _count(update.get("size"))
    if used is not None and size is not None:
        snapshot = noted(snapshot, "context", {"used": used, "size": size})
    cost = _dict(update.get("cost"))
    amount = cost.get("amount")
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not _is_a_price(amount):
        return snapshot
    currency = _words(cost, "currency").get("currency")
    return snapshot.evolve(metrics=snapshot.metrics.evolve(cost=float(amount), currency=currency))


STATE_UPDATES: Mapping[str, Callable[[SessionSnapshot, Raw], SessionSnapshot]] = {
    "plan": _with_plan,
    "available_commands_update": _with_commands,
    "current_mode_update": _with_mode,
    "config_option_update": _with_options,
    "session_info_update": _with_info,
    "usage_update": _with_context,
}
"""Updates that say how the session is, not what was said in it: the last one counts."""


def _acp(kept: SessionSnapshot | Message) -> Raw:
    return _dict(kept.metadata.get("acp"))


def _dict(value: Any) -> Raw:
    return value if isinstance(value, dict) else {}


def _words(value: Any, *names: str) -> Raw:
    """Those of the named fields that are there and are strings."""
    return (
        {name: value[name] for name in names if isinstance(value.get(name), str)} if isinstance(value, dict) else {}
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def _is_a_price(amount: float) -> bool:
    return abs(amount) < 1e300 and math.isfinite(amount)  # noqa: PLR2004 — what a float surely holds


def _is_named(server: Any) -> bool:
    return bool(_words(server, "name"))


class ContextWindow(NamedTuple):
    """Tokens in the model's context, and how many it holds, as the agent last said."""

    used: int
    size: int


def context_window(snapshot: SessionSnapshot) -> ContextWindow | None:
    """How full the context was at the end."""
    context = _noted(snapshot, "context")
    used, size = context.get("used"), context.get("size")
    return ContextWindow(used, size) if isinstance(used, int) and isinstance(size, int) else None


def last_restore(snapshot: SessionSnapshot) -> Mapping[str, Any] | None:
    """The report of the last time the session was brought back: grade, messages, tried, notices, differences."""
    return _noted(snapshot, "restored") or None


def expected_grade(snapshot: SessionSnapshot) -> str | None:
    """The grade with which the recorded agent can bring the session back at best; None if it never said."""
    can = _noted(snapshot, "capabilities")
    if not can or not snapshot.agent_session_id:
        return None
    if can.get("load") is True:
        return "native-load"
    return "native-resume" if can.get("resume") is True else "context"


def _noted(snapshot: SessionSnapshot, name: str) -> Mapping[str, Any]:
    acp = snapshot.metadata.get("acp")
    value = acp.get(name) if isinstance(acp, dict) else None
    return value if isinstance(value, dict) else {}


_WELL = ("end_turn", "max_tokens", "max_turn_requests")


class Turn(NamedTuple):
    """A prompt and the messages up to the next one. What came before the first prompt is a turn without one."""

    messages: tuple[Message, ...]

    @property
    def settled(self) -> bool:
        """Whether it was answered to its end: the agent can be expected to remember it."""
        answers = [message for message in self.messages if message.role == "assistant"]
        has_prompt = self.messages[0].role == "user"
        return has_prompt and bool(answers) and not any(was_cut_off(answer) for answer in answers)

    @property
    def refused(self) -> bool:
        """Whether the model does not have it: the agent refused it, or it never reached the agent."""
        ends = [_acp(message) for message in self.messages]
        return any(end.get("stopReason") == "refusal" or "unsent" in end for end in ends)


def turns(messages: Sequence[Message]) -> Iterator[Turn]:
    """The record, turn by turn."""
    start = 0
    for at, message in enumerate(messages):
        if message.role == "user" and at > start:
            yield Turn(tuple(messages[start:at]))
            start = at
    if start < len(messages):
        yield Turn(tuple(messages[start:]))


def settled_tools(messages: Sequence[Message]) -> tuple[Message, ...]:
    """*messages* with the tool calls of finished turns finished: some agents never say that a tool is done."""
    return tuple(
        _with_settled_tools(message) if turn.settled else message
        for turn in turns(messages)
        for message in turn.messages
    )


def _with_settled_tools(message: Message) -> Message:
    if not any(isinstance(block, ToolCallBlock) and block.is_open for block in message.content):
        return message
    content = tuple(
        block.evolve(status="completed") if isinstance(block, ToolCallBlock) and _is_done(block) else block
        for block in message.content
    )
    return message.evolve(content=content)


def _is_done(call: ToolCallBlock) -> bool:
    return call.is_open and bool(call.content or call.raw_output is not None)


def was_cut_off(answer: Message) -> bool:
    """Whether an answer ended before its time: a crash, an error, a refusal, or the user's wish."""
    end = _acp(answer)
    if not end.keys().isdisjoint(("interrupted", "error", "unsent")):
        return True
    return "stopReason" in end and end["stopReason"] not in _WELL


def was_interrupted(message: Message) -> bool:
    """Whether a crash ended it: nobody told the agent's model."""
    return "interrupted" in _acp(message)
