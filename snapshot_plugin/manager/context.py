"""Read and restore an agent's context: history, prompts, tools, permissions.

An agent either provides its context (`PersistentAgent`) or has plain attributes named like the fields of
`AgentContext`; the attributes it has are stored. An attribute whose value has ``get_state()`` and
``set_state(state)``, such as a permission manager, is read and restored through them. Messages are `Message`
values, or dicts, which round-trip exactly.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pydantic import ValidationError

from snapshot_plugin.errors import InvalidInput, InvalidSnapshot
from snapshot_plugin.model.frozen import FrozenDict, freeze, thaw
from snapshot_plugin.model.snapshot import Message, Role, SessionSnapshot
from snapshot_plugin.model.value import JsonObject, Value
from snapshot_plugin.model.withheld import is_credential
from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "AgentContext",
    "AgentReader",
    "FrameworkConversation",
    "PersistentAgent",
    "PluginStates",
    "Problem",
    "conversation_of",
]


class AgentContext(Value):
    """The context of an agent, without its plugins and memory. None: the agent has no such part."""

    history: tuple[Message, ...] = ()
    system_prompt: str | None = None
    instructions: str | None = None
    model: str | None = None
    tools: JsonObject = FrozenDict()
    permissions: JsonObject = FrozenDict()
    options: JsonObject = FrozenDict()
    title: str | None = None
    tags: tuple[str, ...] = ()


@runtime_checkable
class PersistentAgent(Protocol):
    """An agent that returns and accepts its context."""

    def get_context(self) -> AgentContext:
        """The current context. Must return quickly: it is called in the event loop."""

    def set_context(self, context: AgentContext) -> None:
        """Restore the agent from *context*."""


class Problem(NamedTuple):
    """A part that could not be saved or restored. All other parts were."""

    part: str
    reason: str


_IN_CONFIG = ("system_prompt", "instructions", "model", "tools", "permissions", "options")
_ON_TOP = ("title", "tags")
_PARTS = ("history", *_IN_CONFIG, *_ON_TOP)
_ADAPTERS = {
    "agents": "snapshot_plugin.frameworks.openai_agents",
    "pydantic_ai": "snapshot_plugin.frameworks.pydantic_ai",
}
"""The adapters of frameworks whose agents do not hold their conversation, by the name of the framework's module."""
_MISSING = "not_kept"
"""The metadata entry that lists the parts of the agent that could not be saved."""
_DICTS = "dicts"
"""The value of ``metadata.history`` if the agent's messages are dicts and must be restored as dicts."""


_ORIGINAL = "original"
"""The entry of a message's metadata with the original dict, if it cannot be rebuilt exactly from our fields."""
_OURS = frozenset({*Message.model_fields, "tool_calls"})
_ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}


class FrameworkConversation(Protocol):
    """A conversation stored by a framework's adapter. Each message is durable once it is added."""

    framework: str
    adapter: Any
    """The object that the framework uses: a session, or a store of conversations."""

    async def run(self, prompt: Any, **options: Any) -> Any:
        """Run the agent as the framework does, and store the conversation."""


def conversation_of(agent: object, session_id: str, store: SnapshotStore) -> FrameworkConversation | None:
    """The conversation of an agent whose framework has an adapter; None for any other agent."""
    if isinstance(agent, PersistentAgent) or hasattr(agent, "history"):
        return None
    for each in type(agent).__mro__:
        if name := _ADAPTERS.get(each.__module__.partition(".")[0]):
            try:
                adapter = import_module(name)  # by name: adapters are above this layer
            except ImportError:  # a module of the user's own has the name of a framework
                return None
            made: FrameworkConversation | None = adapter.persistent_conversation(agent, session_id, store)
            return made
    return None


class AgentReader:
    """Reads the context of one agent, and restores it."""

    def __init__(self, agent: object, *, kept_by_adapter: bool = False) -> None:
        self._agent = agent
        self._speaks = isinstance(agent, PersistentAgent)
        self._history = _History()
        self._kept_by_adapter = kept_by_adapter
        self._parts = _PARTS if self._speaks else tuple(part for part in _PARTS if hasattr(agent, part))
        if kept_by_adapter:
            self._parts = ()  # its settings are code, and the adapter stores its conversation
        elif not self._parts:
            raise InvalidInput(
                f"a {type(agent).__name__} has nothing to keep",
                hint=f"give it get_context() and set_context(), or attributes such as {', '.join(_PARTS[:3])}",
            )

    def read(self, onto: SessionSnapshot) -> tuple[SessionSnapshot, list[Problem]]:
        """*onto* with the agent's current context. A part that is not JSON keeps its old value and is reported."""
        problems: list[Problem] = []
        values = self._spoken() if self._speaks else self._attributes(problems)
        for part, value in values.items():
            try:
                if part == "history":
                    onto = self._with_history(onto, self._history.read(value, problems))
                else:
                    onto = _with_part(onto, part, _plain(part, value))
            except (InvalidSnapshot, ValidationError, TypeError) as error:
                problems.append(Problem(part, str(error)))
        return _with_missing(onto, [problem.part for problem in problems]), problems

    @property
    def unreadable_history(self) -> Problem | None:
        """Why no conversation is stored; None if the agent's history can be read."""
        if "history" in self._parts or self._kept_by_adapter:
            return None
        what = f"a {type(self._agent).__name__} has no history that can be read"
        instead = "give it a list named history, or get_context()"
        return Problem("history", f"{what}: {instead}, or use an adapter of snapshot_plugin.frameworks")

    def write(self, snapshot: SessionSnapshot) -> list[Problem]:
        """Restore the agent from *snapshot*, part by part; returns the parts that failed."""
        given = _values_of(snapshot)
        agent = self._agent
        if isinstance(agent, PersistentAgent):
            context = AgentContext(**given)
            return _attempt("context", lambda: agent.set_context(context))
        given["history"] = _messages_for(snapshot)
        problems: list[Problem] = []
        missing = snapshot.metadata.get(_MISSING, ())
        for part in self._parts:
            if part not in missing:
                problems += _attempt(part, partial(_give, agent, part, thaw(given[part])))
        return problems

    def _spoken(self) -> dict[str, Any]:
        context = self._agent.get_context()  # type: ignore[attr-defined]
        if not isinstance(context, AgentContext):
            raise InvalidSnapshot(f"get_context() gave a {type(context).__name__}, not an AgentContext")
        return {part: getattr(context, part) for part in _PARTS}

    def _attributes(self, problems: list[Problem]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for part in self._parts:
            try:
                value = getattr(self._agent, part)
                values[part] = value.get_state() if hasattr(value, "get_state") else value
            except Exception as error:  # noqa: BLE001 — one owner's failure is not another's
                problems.append(Problem(part, f"{type(error).__name__}: {error}"))
        return values

    def _with_history(self, onto: SessionSnapshot, messages: tuple[Message, ...]) -> SessionSnapshot:
        kind = {"history": _DICTS} if self._history.are_dicts else {}
        rest = {key: value for key, value in onto.metadata.items() if key != "history"}
        return onto.evolve(messages=messages, metadata={**rest, **kind})


class _History:
    """Converts an agent's messages to `Message`. Unchanged messages stay the same objects."""

    def __init__(self) -> None:
        self.are_dicts = False
        self._known: list[tuple[Any, Message]] = []

    def read(self, history: Iterable[Any], problems: list[Problem]) -> tuple[Message, ...]:
        """The messages. A message that cannot be stored is left out and added to *problems*."""
        if isinstance(history, str | Mapping):
            raise InvalidSnapshot(f"the history is a {type(history).__name__}, not a list of messages")
        known, self._known = self._known, []
        for index, item in enumerate(history):
            place = len(self._known)
            if place < len(known) and _same(known[place][0], item):
                self._known.append(known[place])
                continue
            try:
                self._known.append((_kept(item), _message(item)))
            except (InvalidSnapshot, ValidationError, TypeError) as error:
                problems.append(Problem(f"history[{index}]", str(error)))
        self.are_dicts = any(isinstance(item, Mapping) for item, _ in self._known)
        return tuple(message for _, message in self._known)


def _same(kept: Any, item: Any) -> bool:
    return kept is item or (isinstance(item, Mapping) and bool(kept == item))


def _kept(item: Any) -> Any:
    """A copy to compare with later, because the agent may change its own objects."""
    return copy.deepcopy(item) if isinstance(item, Mapping) else item


def _message(item: Any) -> Message:
    if isinstance(item, Message):
        return item
    if not isinstance(item, Mapping):
        kind = type(item).__name__
        raise InvalidSnapshot(f"a message is a {kind}", hint="use Message, or dicts, or write get_context()")
    given = freeze(dict(item), "message")
    try:
        message = _made(given)
    except (InvalidSnapshot, ValidationError):
        message = Message(role=_ROLES.get(str(given.get("role")), "user"), content=_text(given.get("content")))
    if json.dumps(_as_dict(message), sort_keys=True) == json.dumps(given, sort_keys=True):  # 1 is not true
        return message
    return message.evolve(metadata={**message.metadata, _ORIGINAL: given})


def _made(given: Mapping[str, Any]) -> Message:
    """The message with its tool calls as blocks; unknown fields are kept unchanged."""
    if "tool_calls" in given:
        return Message(**{name: value for name, value in given.items() if name in _OURS})
    return Message.model_validate(given)


def _text(content: Any) -> str:
    """The readable text in content of an unknown shape."""
    if isinstance(content, list):
        return "".join(_text(block.get("text")) for block in content if isinstance(block, dict))
    return content if isinstance(content, str) else ""


def _messages_for(snapshot: SessionSnapshot) -> Sequence[Any]:
    if snapshot.metadata.get("history") != _DICTS:
        return list(snapshot.messages)
    return [_as_dict(message) for message in snapshot.messages]


def _as_dict(message: Message) -> dict[str, Any]:
    """The message exactly as the agent had it; plain text is a string."""
    if _ORIGINAL in message.metadata:
        original: dict[str, Any] = thaw(message.metadata[_ORIGINAL])
        return original
    raw: dict[str, Any] = thaw(message.raw())
    if raw.get("content") and raw["content"] == [{"type": "text", "text": raw["content"][0].get("text")}]:
        raw["content"] = raw["content"][0]["text"]
    return raw


def _with_missing(onto: SessionSnapshot, parts: Sequence[str]) -> SessionSnapshot:
    """*onto*, with the parts that were never saved listed. A load leaves these parts of the agent alone."""
    kept = _values_of(onto)
    missing = [part for part in parts if part in kept and not kept[part]]
    rest = {key: value for key, value in onto.metadata.items() if key != _MISSING}
    if missing:
        return onto.evolve(metadata={**rest, _MISSING: missing})
    return onto if len(rest) == len(onto.metadata) else onto.evolve(metadata=rest)


def _with_part(onto: SessionSnapshot, part: str, value: Any) -> SessionSnapshot:
    if part in _ON_TOP:
        return onto.evolve(**{part: value})
    return onto.evolve(config=onto.config.evolve(**{part: value}))


def _plain(part: str, value: Any) -> Any:
    if part == "tags":
        return tuple(value or ())
    if part in ("tools", "permissions", "options"):
        return freeze(dict(value or {}) if isinstance(value, Mapping | None) else value, part)
    return value


def _values_of(snapshot: SessionSnapshot) -> dict[str, Any]:
    inside = {part: getattr(snapshot.config, part) for part in _IN_CONFIG}
    return {"history": snapshot.messages, **inside, "title": snapshot.title, "tags": snapshot.tags}


def _give(agent: object, part: str, value: Any) -> None:
    """Set a part through its owner, if any, as the type that the agent uses.

    Lists and dicts are changed in place, because they may be shared.
    """
    current = getattr(agent, part)
    if hasattr(current, "set_state"):
        current.set_state(value)
    elif isinstance(current, MutableMapping):
        kept = {name: item for name, item in current.items() if name not in value and is_credential(name, item)}
        current.clear()  # keep credentials, which no snapshot contains
        current.update(kept | value)
    elif isinstance(current, MutableSequence):
        current.clear()
        current.extend(value)
    elif current is not None or value:
        setattr(agent, part, type(current)(value) if isinstance(current, tuple | set | frozenset) else value)
    if isinstance(current, MutableMapping | MutableSequence) and getattr(agent, part) != current:
        setattr(agent, part, current)  # a property that returned a copy


def _attempt(part: str, give: Callable[[], None]) -> list[Problem]:
    try:
        give()
    except Exception as error:  # noqa: BLE001 — one owner's failure is not another's
        return [Problem(part, f"{type(error).__name__}: {error}")]
    return []


class _Plugin(NamedTuple):
    get_state: Callable[[], Any]
    set_state: Callable[[Any], None]


class PluginStates:
    """Plugins by name.

    A failing plugin is reported and does not affect the others. The state of an unregistered plugin is kept.
    """

    def __init__(self) -> None:
        self._plugins: dict[str, _Plugin] = {}

    def register(self, name: str, get_state: Callable[[], Any], set_state: Callable[[Any], None]) -> None:
        """Save a plugin's state from now on. Both functions are synchronous."""
        if not name or name in self._plugins:
            raise InvalidInput(f"the plugin name {name!r} is empty or taken", hint="register each plugin once")
        for function in (get_state, set_state):
            if inspect.iscoroutinefunction(function):
                raise InvalidInput(f"plugin {name!r} needs two plain functions", hint="async ones do not work here")
        self._plugins[name] = _Plugin(get_state, set_state)

    def read(self, before: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
        """Every plugin's current state; *before* is used for plugins that fail."""
        states, problems = dict(before), []
        for name, plugin in self._plugins.items():
            try:
                states[name] = freeze(plugin.get_state(), name)
            except Exception as error:  # noqa: BLE001 — one plugin's failure is not another's
                problems.append(Problem(f"plugin {name}", f"{type(error).__name__}: {error}"))
        return states, problems

    def write(self, states: Mapping[str, Any], *, only: str | None = None) -> list[Problem]:
        """Restore the state of each registered plugin, or of one; returns those that failed."""
        problems: list[Problem] = []
        for name, plugin in self._plugins.items():
            if name in states and only in (None, name):
                problems += _attempt(f"plugin {name}", partial(plugin.set_state, thaw(states[name])))
        return problems
