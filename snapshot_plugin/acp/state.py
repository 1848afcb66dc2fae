"""The state of a session: setup, agent, plan, mode, options, commands, title, usage; and its turns.

Pure functions from a snapshot and a piece of the protocol to the next snapshot. Malformed input changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from snapshot_plugin.acp.messages import as_object
from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.live.label import apply_label
from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.snapshot import AgentInfo, McpServer, Message, PlanEntry, SessionSnapshot
from snapshot_plugin.model.value import with_text_names

__all__ = [
    "HISTORY",
    "PROVIDER",
    "STATE_EVENTS",
    "STATE_UPDATES",
    "ContextWindow",
    "Turn",
    "acp_metadata",
    "agent_names",
    "context_window",
    "expected_grade",
    "last_restore",
    "messages_in_note",
    "note_pending",
    "settled_tools",
    "setup_in",
    "stored_setup",
    "turns",
    "was_cut_off",
    "was_interrupted",
    "with_acp_metadata",
    "with_history",
    "with_restored",
    "with_usage",
]

PROVIDER = "acp"
"""The provider type of sessions recorded over ACP."""

HISTORY = "acp-history"
"""The plugin section with the agent's own history of the session."""

Raw = dict[str, Any]
_TOKENS = {"total_tokens": "totalTokens", "input_tokens": "inputTokens", "output_tokens": "outputTokens"}


def setup_in(params: Mapping[str, Any]) -> Raw:
    """Return the setup in the parameters of ``session/new`` and the like. It has secrets: never store it."""
    return {name: params[name] for name in ("cwd", "mcpServers", "additionalDirectories") if name in params}


def stored_setup(params: Mapping[str, Any]) -> Raw:
    """Return the storable part of the parameters of ``session/new``: of MCP servers only name and type.

    Environment, headers, arguments and addresses may hold secrets; the client sends them again with every load.
    """
    setup: Raw = {"cwd": params["cwd"]} if isinstance(params.get("cwd"), str) else {}
    if isinstance(directories := params.get("additionalDirectories"), list):
        setup["additionalDirectories"] = [path for path in directories if isinstance(path, str)]
    if isinstance(servers := params.get("mcpServers"), list):
        setup["mcpServers"] = [_words(server, "name", "type") for server in servers if _words(server, "name")]
    return setup


def _with_setup(snapshot: SessionSnapshot, params: Raw) -> SessionSnapshot:
    """Apply the setup of the session."""
    setup = stored_setup(params)
    config = snapshot.config.evolve(
        cwd=setup.get("cwd", snapshot.config.cwd),
        additional_directories=tuple(setup.get("additionalDirectories", ())),
        mcp_servers=tuple(McpServer(**server) for server in setup.get("mcpServers", ())),
    )
    return snapshot.evolve(config=config)


def _with_agent(snapshot: SessionSnapshot, value: Raw) -> SessionSnapshot:
    """Apply which agent has the session now, and under which id."""
    info = value.get("info")
    if isinstance(info, dict):
        command = info.get("command")
        parts = tuple(part for part in command if isinstance(part, str)) if isinstance(command, list) else ()
        snapshot = snapshot.evolve(agent=AgentInfo(command=parts, **_words(info, "name", "version")))
    if isinstance(able := value.get("able"), dict):
        known = {name: able[name] for name in ("load", "resume") if isinstance(able.get(name), bool)}
        snapshot = with_acp_metadata(snapshot, "capabilities", known)
    session_id = value.get("sessionId")
    if not isinstance(session_id, str):
        return snapshot
    names = [name for name in agent_names(snapshot) if name != session_id]
    return with_acp_metadata(
        snapshot.evolve(agent_session_id=session_id), "names", [*names, session_id] if names else None
    )


def agent_names(snapshot: SessionSnapshot) -> tuple[str, ...]:
    """Return every id under which an agent has had this session, the current one last."""
    names = acp_metadata(snapshot).get("names")
    known = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    now = snapshot.agent_session_id
    return (*(name for name in known if name != now), now) if now is not None else tuple(known)


def messages_in_note(snapshot: SessionSnapshot) -> int:
    """Return how many messages a restoration note told the agent when its session was last created anew."""
    return _count(acp_metadata(snapshot).get("told")) or 0


def note_pending(snapshot: SessionSnapshot) -> bool:
    """Whether the agent's session is empty: no prompt has carried the restoration note to its model yet."""
    told = messages_in_note(snapshot)
    return bool(snapshot.messages and told) and all(turn.is_void for turn in turns(snapshot.messages[told:]))


def with_restored(snapshot: SessionSnapshot, report: Raw, messages: int) -> SessionSnapshot:
    """Apply the report of a restore. With grade ``context``, *messages* is the new count for `messages_in_note`."""
    snapshot = with_acp_metadata(snapshot, "restored", report)
    return with_acp_metadata(snapshot, "told", messages) if report.get("grade") == "context" else snapshot


def _with_config(snapshot: SessionSnapshot, value: Raw) -> SessionSnapshot:
    """Apply the modes, models and options of a response."""
    if isinstance(modes := value.get("modes"), dict):
        snapshot = _with_mode(snapshot, modes)
    if isinstance(models := value.get("models"), dict):
        # unstable, but many agents still use it
        snapshot = _with_choice(snapshot, "model", models, "currentModelId", "availableModels")
    return _with_options(snapshot, value)


def with_usage(snapshot: SessionSnapshot, usage: Any) -> SessionSnapshot:
    """Add one turn's tokens to the session's."""
    used = {ours: _count(as_object(usage).get(wire)) for ours, wire in _TOKENS.items()}
    metrics = snapshot.metrics
    sums = {name: getattr(metrics, name) + count for name, count in used.items() if count is not None}
    return snapshot.evolve(metrics=metrics.evolve(**sums)) if sums else snapshot


def with_history(snapshot: SessionSnapshot, value: Raw, messages: int) -> SessionSnapshot:
    """Store the agent's own history, which covers the first *messages* messages of the record."""
    kept = {"value": value, "messages": messages, "agent": snapshot.agent.name if snapshot.agent else None}
    return snapshot.evolve(plugins={**snapshot.plugins, HISTORY: kept})


def with_acp_metadata(snapshot: SessionSnapshot, name: str, value: Any) -> SessionSnapshot:
    """Set a value in our section of the metadata; None removes it."""
    acp = {key: kept for key, kept in acp_metadata(snapshot).items() if key != name}
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
    return PlanEntry.model_validate(with_text_names(rest | known))  # an agent may send unknown fields


def _with_commands(snapshot: SessionSnapshot, update: Raw) -> SessionSnapshot:
    commands = update.get("availableCommands")
    return with_acp_metadata(snapshot, "commands", commands) if isinstance(commands, list) else snapshot


def _with_mode(snapshot: SessionSnapshot, modes: Raw) -> SessionSnapshot:
    return _with_choice(snapshot, "mode", modes, "currentModeId", "availableModes")


def _with_choice(snapshot: SessionSnapshot, name: str, given: Raw, current: str, available: str) -> SessionSnapshot:
    """Store the available choices of a mode or a model, and the current one."""
    known = {key: given[key] for key in (current, available) if given.get(key) is not None}
    before = as_object(acp_metadata(snapshot).get(f"{name}s"))
    snapshot = with_acp_metadata(snapshot, f"{name}s", {**before, **known})
    choice = given.get(current)
    return snapshot.evolve(config=snapshot.config.evolve(**{name: choice})) if isinstance(choice, str) else snapshot


def _with_options(snapshot: SessionSnapshot, update: Raw) -> SessionSnapshot:
    options = update.get("configOptions")
    if not isinstance(options, list):
        return snapshot
    known = [option for option in options if _words(option, "id")]
    config = snapshot.config.evolve(options={option["id"]: option.get("currentValue") for option in known})
    models = [_words(option, "currentValue") for option in known if option.get("category") == "model"]
    for model in models[:1]:
        config = config.evolve(model=model.get("currentValue", config.model))
    return with_acp_metadata(snapshot.evolve(config=config), "configOptions", options)


def _with_info(snapshot: SessionSnapshot, update: Raw) -> SessionSnapshot:
    before = acp_metadata(snapshot).get("title")
    title = update.get("title", before)
    if title is not None and not isinstance(title, str):
        return snapshot
    is_ours = snapshot.title not in (None, before)  # renamed by a user: that title takes precedence
    noticed = with_acp_metadata(snapshot, "title", title)
    return noticed if is_ours else noticed.evolve(title=title)


def _with_context(snapshot: SessionSnapshot, update: Raw) -> SessionSnapshot:
    used, size = _count(update.get("used")), _count(update.get("size"))
    if used is not None and size is not None:
        snapshot = with_acp_metadata(snapshot, "context", {"used": used, "size": size})
    cost = as_object(update.get("cost"))
    amount = cost.get("amount")
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not _is_a_price(amount):
        return snapshot
    currency = _words(cost, "currency").get("currency")
    return snapshot.evolve(metrics=snapshot.metrics.evolve(cost=float(amount), currency=currency))


def _with_label(snapshot: SessionSnapshot, label: Raw) -> SessionSnapshot:
    try:
        return apply_label(snapshot, label)
    except InvalidInput:  # labels are validated on input; an invalid one in the spool is ignored
        return snapshot


STATE_EVENTS: Mapping[str, Callable[[SessionSnapshot, Raw], SessionSnapshot]] = {
    "new": _with_setup,
    "agent": _with_agent,
    "config": _with_config,
    "label": _with_label,
}
"""Events that change the state of the session; see `events`."""

STATE_UPDATES: Mapping[str, Callable[[SessionSnapshot, Raw], SessionSnapshot]] = {
    "plan": _with_plan,
    "available_commands_update": _with_commands,
    "current_mode_update": _with_mode,
    "config_option_update": _with_options,
    "session_info_update": _with_info,
    "usage_update": _with_context,
}
"""Updates that change the state of the session, not its messages: the last one wins."""


def acp_metadata(kept: SessionSnapshot | Message) -> Raw:
    """Return our section of the metadata of a session or a message."""
    return as_object(kept.metadata.get("acp"))


def _words(value: Any, *names: str) -> Raw:
    """Return those of the named fields that are present and are strings."""
    given = as_object(value)
    return {name: given[name] for name in names if isinstance(given.get(name), str)}


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _is_a_price(amount: float) -> bool:
    return abs(amount) < 1e300 and math.isfinite(amount)  # noqa: PLR2004 — fits a float


class ContextWindow(NamedTuple):
    """Tokens used in the model's context, and its size, as the agent last reported."""

    used: int
    size: int


def context_window(snapshot: SessionSnapshot) -> ContextWindow | None:
    """Return how full the context was at the end; None if the agent never reported it."""
    context = as_object(acp_metadata(snapshot).get("context"))
    used, size = context.get("used"), context.get("size")
    return ContextWindow(used, size) if isinstance(used, int) and isinstance(size, int) else None


def last_restore(snapshot: SessionSnapshot) -> Mapping[str, Any] | None:
    """Return the report of the last restore: grade, messages, tried, notices, differences."""
    return as_object(acp_metadata(snapshot).get("restored")) or None


def expected_grade(snapshot: SessionSnapshot) -> str | None:
    """Return the best grade with which the recorded agent can restore the session; None if unknown."""
    can = as_object(acp_metadata(snapshot).get("capabilities"))
    if not can:
        return None
    if not snapshot.agent_session_id or note_pending(snapshot):  # a branch has no session of the agent yet
        return "context"
    if can.get("load") is True:
        return "native-load"
    return "native-resume" if can.get("resume") is True else "context"


_WELL = ("end_turn", "max_tokens", "max_turn_requests")


class Turn(NamedTuple):
    """A prompt and the messages up to the next one. Messages before the first prompt are a turn without one."""

    messages: tuple[Message, ...]

    @property
    def settled(self) -> bool:
        """Whether the answer is complete, so that the agent is expected to remember it."""
        answers = [message for message in self.messages if message.role == "assistant"]
        has_prompt = self.messages[0].role == "user"
        return has_prompt and bool(answers) and not any(was_cut_off(answer) for answer in answers)

    @property
    def has_ended(self) -> bool:
        """Whether the agent said how it ended."""
        return any("stopReason" in acp_metadata(message) for message in self.messages)

    @property
    def refused(self) -> bool:
        """Whether the model lacks it because the agent refused it, or it never reached the agent."""
        ends = [acp_metadata(message) for message in self.messages]
        return any(end.get("stopReason") == "refusal" or "unsent" in end for end in ends)

    @property
    def is_void(self) -> bool:
        """Whether the model may lack it because it was refused, failed, or never reached the agent."""
        return self.refused or any("error" in acp_metadata(message) for message in self.messages)


def turns(messages: Sequence[Message]) -> Iterator[Turn]:
    """Split *messages* into turns."""
    start = 0
    for at, message in enumerate(messages):
        if message.role == "user" and at > start:
            yield Turn(tuple(messages[start:at]))
            start = at
    if start < len(messages):
        yield Turn(tuple(messages[start:]))


def settled_tools(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Close the tool calls that completed turns left open: some agents never report the end of a tool.

    A call that the user did not permit failed; any other is completed. Without the end of the turn (it was copied
    while it ran, or the agent replayed it), only a call that has an output is.
    """
    return tuple(
        _with_settled_tools(message, has_ended=turn.has_ended) if turn.settled else message
        for turn in turns(messages)
        for message in turn.messages
    )


def _with_settled_tools(message: Message, *, has_ended: bool) -> Message:
    if not any(isinstance(block, ToolCallBlock) and block.is_open for block in message.content):
        return message
    content = tuple(
        block.evolve(status="failed" if _was_denied(block) else "completed")
        if isinstance(block, ToolCallBlock) and block.is_open and (has_ended or _has_output(block))
        else block
        for block in message.content
    )
    return message.evolve(content=content)


def _has_output(call: ToolCallBlock) -> bool:
    return bool(call.content or call.raw_output is not None)


def _was_denied(call: ToolCallBlock) -> bool:
    """Whether the client answered the permission request for this call with a no, or with a cancellation."""
    permission = as_object((call.model_extra or {}).get("permission"))
    outcome, options = as_object(permission.get("outcome")), permission.get("asked")
    chosen = [
        str(as_object(option).get("kind"))
        for option in (options if isinstance(options, list) else ())
        if as_object(option).get("optionId") == outcome.get("optionId")
    ]
    return outcome.get("outcome") == "cancelled" or any(kind.startswith("reject") for kind in chosen)


def was_cut_off(answer: Message) -> bool:
    """Whether an answer is incomplete: a crash, an error, a refusal, or a cancellation ended it."""
    end = acp_metadata(answer)
    if not end.keys().isdisjoint(("interrupted", "error", "unsent")):
        return True
    return "stopReason" in end and end["stopReason"] not in _WELL


def was_interrupted(message: Message) -> bool:
    """Whether a crash ended it, so that the agent's model may not know."""
    return "interrupted" in acp_metadata(message)
