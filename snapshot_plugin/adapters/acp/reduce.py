"""From raw ACP messages to the session model: a reducer without I/O, fed live by the relay and again by recovery.

An event is what the journal writes ahead: one JSON object with one of the keys below. Applying the same events
to the same snapshot always gives the same snapshot, so what was recovered is what was seen.

====================  =====================================================================================
``new``               the session began: cwd, agent, servers by name, modes and options
``agent``             which agent has it, and under which id
``prompt``            the user's prompt, as sent
``update``            one ``session/update``, as received
``stop``              the prompt's answer: stop reason, usage
``interrupted``       the turn ended without an answer: why
``permission``        what was asked before a tool ran; ``outcome`` is what was answered
``terminal``          the output of a terminal that a tool call shows: its id dies with the client
``config``            modes and options that a response brought
====================  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from snapshot_plugin.adapters.acp.parts import Draft, merged
from snapshot_plugin.model.content import TextBlock, ToolCallBlock, parse_block
from snapshot_plugin.model.snapshot import AgentInfo, McpServer, Message, PlanEntry, SessionSnapshot

__all__ = ["Recording", "reduce_events"]


class Recording:
    """A session as it is being recorded. Applying an event costs the event; `snapshot` costs the open message."""

    def __init__(self, base: SessionSnapshot) -> None:
        self._base = base
        self._messages = list(base.messages)
        self._draft: Draft | None = None
        self._echo: str | None = None
        self._terminals: dict[str, Any] = {}
        self._asked: dict[str, str] = {}
        self.running = False
        """Whether a prompt waits for its answer."""

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take one event in. One that makes no sense is kept verbatim or passed over; it never raises."""
        for kind, value in event.items():
            handler = getattr(self, f"_on_{kind}", None)
            if handler is not None and value is not None:
                handler(value, event)

    def snapshot(self, now: datetime) -> SessionSnapshot:
        """The session as it is now."""
        messages = tuple(self._messages)
        if self._draft:
            messages = (*messages, Message(role="assistant", content=self._draft.blocks))
        return self._base.evolve(messages=messages, updated_at=now)

    # What the client sends --------------------------------------------------------------------------------

    def _on_new(self, value: dict[str, Any], _event: Mapping[str, Any]) -> None:
        servers = [McpServer.model_validate(s) for s in value.get("mcpServers") or () if _is_named(s)]
        config = self._base.config.evolve(
            cwd=value.get("cwd"),
            additional_directories=tuple(value.get("additionalDirectories") or ()),
            mcp_servers=tuple(servers),
        )
        self._base = self._base.evolve(config=config)

    def _on_agent(self, value: dict[str, Any], _event: Mapping[str, Any]) -> None:
        self._base = self._base.evolve(
            agent_session_id=value.get("sessionId"), agent=AgentInfo.model_validate(value.get("info") or {})
        )

    def _on_prompt(self, value: list[Any], event: Mapping[str, Any]) -> None:
        self._close()
        blocks = tuple(parse_block(block) for block in value if isinstance(block, dict))
        self._messages.append(Message(role="user", content=blocks, timestamp=event.get("t")))
        self._echo = "".join(block.text for block in blocks if isinstance(block, TextBlock))
        self.running = True
        metrics = self._base.metrics
        self._base = self._base.evolve(metrics=metrics.evolve(turns=metrics.turns + 1))

    def _on_config(self, value: dict[str, Any], _event: Mapping[str, Any]) -> None:
        modes, options = value.get("modes"), value.get("configOptions")
        if isinstance(modes, dict):
            self._set_mode(modes.get("currentModeId"), modes)
        if isinstance(options, list):
            self._set_options(options)

    # What the agent sends ---------------------------------------------------------------------------------

    def _on_update(self, value: dict[str, Any], _event: Mapping[str, Any]) -> None:
        kind = value.get("sessionUpdate")
        handler = getattr(self, f"_update_{kind}", None) if isinstance(kind, str) else None
        if handler is None:
            self._open().keep(value)
        else:
            handler(value)

    def _update_agent_message_chunk(self, update: dict[str, Any]) -> None:
        self._echo = None
        self._open().chunk("text", update.get("content"), update.get("messageId"))

    def _update_agent_thought_chunk(self, update: dict[str, Any]) -> None:
        self._open().chunk("thought", update.get("content"), update.get("messageId"))

    def _update_user_message_chunk(self, update: dict[str, Any]) -> None:
        content = update.get("content")
        text = content.get("text") if isinstance(content, dict) else None
        if self._echo and isinstance(text, str) and self._echo.startswith(text):
            self._echo = self._echo[len(text) :]  # an agent that repeats the prompt: it is recorded already
            return
        if not self.running and isinstance(content, dict):
            self._close()
            self._messages.append(Message(role="user", content=(parse_block(content),)))
            return
        self._open().keep(update)

    def _update_tool_call(self, update: dict[str, Any]) -> None:
        update = self._with_terminals(update)
        if not self._open().tool(update) and not self._edit_older(update):
            self._open().keep(update)

    def _update_tool_call_update(self, update: dict[str, Any]) -> None:
        update = self._with_terminals(update)
        if self._draft and self._draft.tool(update):
            return
        if not self._edit_older(update) and not self._open().tool({**update, "sessionUpdate": "tool_call"}):
            self._open().keep(update)

    def _update_plan(self, update: dict[str, Any]) -> None:
        entries = update.get("entries")
        good = [e for e in entries if isinstance(e, dict) and isinstance(e.get("content"), str)] if entries else []
        self._base = self._base.evolve(plan=tuple(PlanEntry.model_validate(entry) for entry in good))

    def _update_available_commands_update(self, update: dict[str, Any]) -> None:
        self._note("commands", update.get("availableCommands"))

    def _update_current_mode_update(self, update: dict[str, Any]) -> None:
        self._set_mode(update.get("currentModeId"), None)

    def _update_config_option_update(self, update: dict[str, Any]) -> None:
        if isinstance(options := update.get("configOptions"), list):
            self._set_options(options)

    def _update_session_info_update(self, update: dict[str, Any]) -> None:
        if "title" in update:
            title = update["title"]
            self._base = self._base.evolve(title=title if isinstance(title, str) else None)

    def _update_usage_update(self, update: dict[str, Any]) -> None:
        cost = update.get("cost")
        changes: dict[str, Any] = {}
        if isinstance(cost, dict) and isinstance(cost.get("amount"), int | float):
            changes = {"cost": float(cost["amount"]), "currency": cost.get("currency")}
        self._base = self._base.evolve(metrics=self._base.metrics.evolve(**changes))
        self._note("context", {key: update.get(key) for key in ("used", "size")})

    def _update_notice(self, _update: dict[str, Any]) -> None:
        """Notices are for the moment; the protocol says not to replay them."""

    def _on_stop(self, value: dict[str, Any], event: Mapping[str, Any]) -> None:
        usage = value.get("usage")
        if isinstance(usage, dict):
            self._add_usage(usage)
        note = {key: value[key] for key in ("stopReason", "error") if key in value}
        self._close(timestamp=event.get("t"), metadata={"acp": note} if note else {})
        self.running = False

    def _on_interrupted(self, value: str, event: Mapping[str, Any]) -> None:
        if self.running or self._draft:
            self._close(timestamp=event.get("t"), metadata={"acp": {"interrupted": value}})
        self.running = False

    # What both say about a tool ---------------------------------------------------------------------------

    def _on_permission(self, value: dict[str, Any], event: Mapping[str, Any]) -> None:
        call = value.get("toolCall")
        call_id = call.get("toolCallId") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(call_id, str):
            return
        self._update_tool_call_update(call)
        if "n" in event:
            self._asked[str(event["n"])] = call_id
        self._mark(call_id, {"asked": value.get("options")})

    def _on_outcome(self, value: dict[str, Any], event: Mapping[str, Any]) -> None:
        call_id = self._asked.pop(str(event.get("n")), None)
        if call_id is not None:
            self._mark(call_id, {"outcome": value})

    def _on_terminal(self, value: dict[str, Any], _event: Mapping[str, Any]) -> None:
        terminal_id = value.get("terminalId")
        if not isinstance(terminal_id, str):
            return
        known = {**self._terminals.get(terminal_id, {}), **value}
        self._terminals[terminal_id] = known
        for message in self._draft.blocks if self._draft else ():
            if isinstance(message, ToolCallBlock) and _shows(message.content, terminal_id):
                self._mark_terminal(message.tool_call_id, terminal_id, known)

    # ------------------------------------------------------------------------------------------------------

    def _open(self) -> Draft:
        if self._draft is None:
            self._draft = Draft()
        return self._draft

    def _close(self, *, timestamp: Any = None, metadata: dict[str, Any] | None = None) -> None:
        """The assistant's message is finished, or was cut off."""
        if self._draft or metadata:
            blocks = self._draft.blocks if self._draft else ()
            message = Message(role="assistant", content=blocks, timestamp=timestamp, metadata=metadata or {})
            self._messages.append(message)
        self._draft, self._echo = None, None

    def _edit_older(self, update: dict[str, Any]) -> bool:
        """Apply a late update to a call in a finished message."""
        call_id = update.get("toolCallId")
        for at in range(len(self._messages) - 1, max(-1, len(self._messages) - 50), -1):
            blocks = self._messages[at].content
            for index, block in enumerate(blocks):
                if isinstance(block, ToolCallBlock) and block.tool_call_id == call_id:
                    changed = (*blocks[:index], merged(block, update), *blocks[index + 1 :])
                    self._messages[at] = self._messages[at].evolve(content=changed)
                    return True
        return False

    def _mark(self, call_id: str, note: dict[str, Any]) -> None:
        if self._draft is None:
            return
        for block in self._draft.blocks:
            if isinstance(block, ToolCallBlock) and block.tool_call_id == call_id:
                before = (block.model_extra or {}).get("permission") or {}
                self._draft.edit(call_id, {"permission": {**before, **note}})

    def _mark_terminal(self, call_id: str, terminal_id: str, known: dict[str, Any]) -> None:
        if self._draft:
            self._draft.edit(call_id, {"terminals": {terminal_id: known}})

    def _with_terminals(self, update: dict[str, Any]) -> dict[str, Any]:
        shown = {t: known for t, known in self._terminals.items() if _shows(update.get("content"), t)}
        return {**update, "terminals": shown} if shown else update

    def _set_mode(self, mode: Any, modes: dict[str, Any] | None) -> None:
        if isinstance(mode, str):
            self._base = self._base.evolve(config=self._base.config.evolve(mode=mode))
        if modes is not None:
            self._note("modes", modes)

    def _set_options(self, options: list[Any]) -> None:
        values = {
            o["id"]: o.get("currentValue") for o in options if isinstance(o, dict) and isinstance(o.get("id"), str)
        }
        model = next(
            (o.get("currentValue") for o in options if isinstance(o, dict) and o.get("category") == "model"), None
        )
        config = self._base.config.evolve(options=values)
        self._base = self._base.evolve(config=config.evolve(model=model) if isinstance(model, str) else config)
        self._note("configOptions", options)

    def _add_usage(self, usage: dict[str, Any]) -> None:
        metrics = self._base.metrics
        names = {"total_tokens": "totalTokens", "input_tokens": "inputTokens", "output_tokens": "outputTokens"}
        sums = {
            ours: getattr(metrics, ours) + usage[wire]
            for ours, wire in names.items()
            if isinstance(usage.get(wire), int)
        }
        self._base = self._base.evolve(metrics=metrics.evolve(**sums))

    def _note(self, name: str, value: Any) -> None:
        acp = dict(self._base.metadata.get("acp") or {})
        self._base = self._base.evolve(metadata={**self._base.metadata, "acp": {**acp, name: value}})


def _shows(content: Any, terminal_id: str) -> bool:
    return isinstance(content, list) and any(
        isinstance(item, dict) and item.get("type") == "terminal" and item.get("terminalId") == terminal_id
        for item in content
    )


def _is_named(server: Any) -> bool:
    return isinstance(server, dict) and isinstance(server.get("name"), str)


def reduce_events(base: SessionSnapshot, events: Iterable[Mapping[str, Any]], now: datetime) -> SessionSnapshot:
    """The snapshot after *events*; what recovery makes of a spool."""
    recording = Recording(base)
    for event in events:
        recording.apply(event)
    return recording.snapshot(now)
