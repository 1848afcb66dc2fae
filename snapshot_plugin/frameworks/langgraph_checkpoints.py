"""A LangGraph checkpoint as a snapshot, and back.

The ``messages`` channel is the conversation. Every other channel is a section of its own under ``plugins``, which
is not written again while its version stands. The checkpoint's own fields are the section ``langgraph``; the writes
of each task are a section ``langgraph:writes:…``. The checkpoint of a subgraph is a part of the same snapshot
(`SubgraphPart`).
"""

from __future__ import annotations

import base64
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.frameworks.conversations import (
    FLOATS,
    checked,
    described,
    is_exact_json,
    opaque,
    raw_of,
    with_floats,
    without_floats,
)
from snapshot_plugin.frameworks.langchain_messages import Mapped, mapped
from snapshot_plugin.frameworks.sessions import new_session
from snapshot_plugin.model.frozen import FrozenDict, freeze, thaw
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = [
    "Codec", "MessageMap", "SubgraphPart", "core_of", "metadata_of", "part_core_of", "writes_key", "writes_prefix",
]  # fmt: skip

FRAMEWORK = "langgraph"
FORMAT, FORMAT_WITH_PART = 1, 2
"""A snapshot that holds a subgraph's checkpoint has the second: release 0.2 would look for it elsewhere."""
_CHANNEL, _WRITES, _MESSAGES = f"{FRAMEWORK}:channel:", f"{FRAMEWORK}:writes:", "messages"
_PART, _PART_MESSAGE = f"{FRAMEWORK}:part:", f"{FRAMEWORK}:part-message:"


def core_of(snapshot: SessionSnapshot | None) -> Mapping[str, Any] | None:
    """The fields of the checkpoint that *snapshot* holds; None if it holds none."""
    found = checked(snapshot, FRAMEWORK, FORMAT_WITH_PART)
    core = found.plugins.get(FRAMEWORK) if found else None
    return core if isinstance(core, dict) else None


def part_core_of(snapshot: SessionSnapshot) -> Mapping[str, Any] | None:
    """The fields of the subgraph's checkpoint that *snapshot* holds; None if it holds none."""
    core = snapshot.plugins.get(_PART + FRAMEWORK)
    return core if isinstance(core, dict) else None


def metadata_of(core: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a checkpoint, as it was given."""
    return dict(with_floats(thaw(core.get("metadata", {})), core))


def writes_prefix(ns: str, checkpoint_id: str) -> str:
    """The prefix of the sections that hold a checkpoint's pending writes."""
    return f"{_WRITES}{ns}:{checkpoint_id}:"


def writes_key(ns: str, checkpoint_id: str, task_id: str) -> str:
    """The section of one task's pending writes."""
    return writes_prefix(ns, checkpoint_id) + task_id


class SubgraphPart:
    """The checkpoint of a subgraph in a snapshot of its thread: sections beside those of the root's checkpoint.

    A snapshot holds the newest checkpoint of the root, and at most one of a subgraph: the one that was put last. It
    is read and changed as a snapshot of its own. Its messages are sections, too, so that people see those of the
    root.
    """

    def __init__(self) -> None:
        self._known: list[tuple[Any, Message]] = []
        """The sections of the messages and what they were read as: unchanged ones stay the same objects."""
        self._last: tuple[Mapping[str, Any], SessionSnapshot] | None = None
        """The sections of the snapshot that was read or made last, and its part."""

    def of(self, snapshot: SessionSnapshot) -> SessionSnapshot:
        """The part of *snapshot*, with all writes of subgraphs; without a checkpoint if there is none."""
        if self._last and self._last[0] is snapshot.plugins:
            return self._last[1]
        own = {name.removeprefix(_PART): value for name, value in snapshot.plugins.items() if _is_part(name)}
        said = sorted(name for name in own if name.startswith(_PART_MESSAGE))
        messages = self._read([own.pop(name) for name in said])
        empty = new_session(snapshot.session_id, FRAMEWORK, snapshot.updated_at)
        part = empty.model_copy(update={"plugins": FrozenDict(own), "messages": messages})
        self._last = snapshot.plugins, part
        return part

    def put(self, snapshot: SessionSnapshot, part: SessionSnapshot) -> SessionSnapshot:
        """*snapshot* with this part instead of its own."""
        sections = {name: value for name, value in snapshot.plugins.items() if not _is_part(name)}
        for name, value in part.plugins.items():
            sections[name if _is_part(name) else _PART + name] = value
        for index, value in enumerate(self._written(part.messages)):
            sections[f"{_PART_MESSAGE}{index:06}"] = value
        core = snapshot.plugins.get(FRAMEWORK)
        known = FORMAT_WITH_PART if FRAMEWORK in part.plugins else FORMAT
        if core and core["format"] != known:
            sections[FRAMEWORK] = freeze({**core, "format": known})
        made = snapshot.evolve(plugins=sections, updated_at=max(snapshot.updated_at, part.updated_at))
        self._last = made.plugins, part
        return made

    def without_finished(self, snapshot: SessionSnapshot) -> SessionSnapshot:
        """*snapshot* without the part if it belongs to one task: the root's next checkpoint says that it is done.

        A subgraph that remembers has a namespace without tasks. What it remembers stays.
        """
        core = part_core_of(snapshot)
        if core is None:
            return snapshot
        part = self.of(snapshot)
        if ":" in core["ns"]:
            gone = writes_prefix(core["ns"], core["id"])
            early = [name for name in part.plugins if name.startswith(_WRITES) and not name.startswith(gone)]
            rest = FrozenDict({name: part.plugins[name] for name in early})
            part = part.model_copy(update={"plugins": rest, "messages": ()})
        return self.put(snapshot, part)

    def _read(self, sections: Sequence[Any]) -> tuple[Message, ...]:
        known = dict(enumerate(self._known))
        self._known = [
            known[index] if index in known and known[index][0] is each else (each, Message.model_validate(each))
            for index, each in enumerate(sections)
        ]
        return tuple(message for _, message in self._known)

    def _written(self, messages: Sequence[Message]) -> list[Any]:
        known = dict(enumerate(self._known))
        self._known = [
            known[index] if index in known and known[index][1] is each else (freeze(each.raw()), each)
            for index, each in enumerate(messages)
        ]
        return [section for section, _ in self._known]


def _is_part(name: str) -> bool:
    """Whether a section belongs to a subgraph. The namespace of the root is empty."""
    if name.startswith(_WRITES):
        return not name.startswith(_WRITES + ":")
    return name.startswith((_PART, _PART_MESSAGE))


class MessageMap:
    """A cache of the conversation as last mapped or rebuilt, so that unchanged messages are reused."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._talk: tuple[Message, ...] = ()
        self._mapped: list[Mapped | None] = []
        """What each message of the conversation stands for; None for one that is kept opaque."""

    def mapped(self, given: Sequence[BaseMessage], before: tuple[Message, ...]) -> tuple[Message, ...]:
        """*given* as messages of a session; those that are equal in *before* are the same objects."""
        if before is self._talk and self._begins(given):  # nearly always: some messages were added, or none
            made = self._mapped + [mapped(each) for each in given[len(before) :]]
        else:
            known = self._by_name()
            made = [self._again(index, each, known, before) for index, each in enumerate(given)]
        out = [
            found.message if found else opaque(FRAMEWORK, self._codec.packed(each))
            for found, each in zip(made, given, strict=True)
        ]
        is_same = len(out) == len(before) and all(map(operator.is_, out, before))
        self._talk, self._mapped = before if is_same else tuple(out), made
        return self._talk

    def _begins(self, given: Sequence[BaseMessage]) -> bool:
        """Whether *given* begins with the whole conversation as it is known, all of it mapped."""
        known = self._mapped
        return len(given) >= len(known) and all(
            found is not None
            and each.__dict__ == found.pristine.__dict__
            and type(each) is type(found.pristine)
            and each.__pydantic_extra__ == found.pristine.__pydantic_extra__
            for each, found in zip(given, known, strict=False)
        )

    def _by_name(self) -> dict[str | int, Mapped]:
        return {found.message.id or index: found for index, found in enumerate(self._mapped) if found}

    @staticmethod
    def _again(
        index: int, given: BaseMessage, known: Mapping[str | int, Mapped], before: Sequence[Message]
    ) -> Mapped | None:
        found = known.get(given.id or index)
        if found is not None and found.stands_for(given):
            return found
        found, old = mapped(given), before[index] if index < len(before) else None
        return found._replace(message=old) if found and old is not None and old == found.message else found

    def rebuilt(self, messages: tuple[Message, ...]) -> list[BaseMessage]:
        """The LangChain messages that *messages* stand for, as new objects."""
        if messages is not self._talk:
            known = self._by_name()
            made = [self._of(index, each, known) for index, each in enumerate(messages)]
            self._talk, self._mapped = messages, made
        return [
            found.copy() if found else self._codec.unpacked(raw_of(FRAMEWORK, each))
            for found, each in zip(self._mapped, messages, strict=True)
        ]

    @staticmethod
    def _of(index: int, message: Message, known: Mapping[str | int, Mapped]) -> Mapped | None:
        if not message.content and raw_of(FRAMEWORK, message) is not None:
            return None
        found = known.get(message.id or index)
        return found if found is not None and found.message is message else Mapped.of(message)


class Codec:
    """Turns checkpoints into snapshots with a serializer for values that are not JSON."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde

    # Values ----------------------------------------------------------------------------------------------

    def packed(self, value: Any) -> Any:
        """*value* as JSON: itself if JSON gives it back exactly, else what the serializer makes of it.

        Raises:
            InvalidInput: the serializer would pickle it.
        """
        if is_exact_json(value):
            return freeze({"json": value})
        kind, data = self._serde.dumps_typed(value)
        self._check(kind)
        return freeze({"type": kind, "data": base64.b64encode(data).decode()})

    def unpacked(self, stored: Mapping[str, Any]) -> Any:
        """The value that was packed."""
        if "json" in stored:
            return thaw(stored["json"])
        self._check(stored["type"])
        return self._serde.loads_typed((stored["type"], base64.b64decode(stored["data"])))

    @staticmethod
    def _check(kind: str) -> None:
        if "pickle" in kind:
            raise InvalidInput(
                f"a value would be stored as {kind!r}: pickles run code when they are read",
                hint="keep JSON, messages, dataclasses or pydantic models in the state",
            )

    # Writing ---------------------------------------------------------------------------------------------

    def snapshot(
        self,
        base: SessionSnapshot,
        checkpoint: Mapping[str, Any],
        about: Mapping[str, Any],
        *,
        new_versions: Mapping[str, Any],
        messages: MessageMap,
    ) -> SessionSnapshot:
        """The snapshot of *checkpoint* on top of *base*; *about* has its namespace, parent and metadata."""
        values = dict(checkpoint["channel_values"])
        reusable = self._unchanged(base, checkpoint, about, new_versions)
        talk: Any = values.get(_MESSAGES)
        delta = isinstance(talk, _DeltaSnapshot)
        talk = talk.value if delta else talk
        is_talk = isinstance(talk, list) and all(issubclass(kind, BaseMessage) for kind in set(map(type, talk)))
        said = base.messages
        if is_talk:
            del values[_MESSAGES]
            said = (
                said if _MESSAGES in reusable and self.has_value(base, _MESSAGES) else messages.mapped(talk, said)
            )
        own = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        core = {**about, "format": FORMAT, "talk": ("delta" if delta else "plain") if is_talk else None}
        core["checkpoint"] = self.packed(own)
        core["metadata"], floats = without_floats(about["metadata"])
        if floats:
            core[FLOATS] = floats
        sections = self._carried(base, core)
        sections[FRAMEWORK] = freeze(core)
        for name, value in values.items():
            kept = base.plugins.get(_CHANNEL + name) if name in reusable else None
            sections[_CHANNEL + name] = self.packed(value) if kept is None else kept
        facts: dict[str, Any] = {"plugins": sections, "updated_at": max(base.updated_at, _time(checkpoint, base))}
        if said is not base.messages and (model := _model(said)):
            facts["config"] = base.config.evolve(model=model)
        return described(base, said, **facts)

    @staticmethod
    def _unchanged(
        head: SessionSnapshot | None,
        checkpoint: Mapping[str, Any],
        about: Mapping[str, Any],
        new: Mapping[str, Any],
    ) -> frozenset[str]:
        """The channels whose value in *head*, the parent, still stands: their version is the same."""
        core = core_of(head)
        if core is None or core["id"] != about["parent"] or core["ns"] != about["ns"]:
            return frozenset()
        before = core["checkpoint"].get("json", {}).get("channel_versions", {})
        now = checkpoint["channel_versions"]
        return frozenset(name for name in now if name not in new and before.get(name) == now[name])

    @staticmethod
    def _carried(base: SessionSnapshot, core: Mapping[str, Any]) -> dict[str, Any]:
        """Sections that are not the old checkpoint's: other plugins', and early or late writes."""
        old = core_of(base)
        gone = writes_prefix(old["ns"], old["id"]) if old and old["id"] != core["id"] else None
        return {
            name: value
            for name, value in base.plugins.items()
            if name != FRAMEWORK and not name.startswith(_CHANNEL) and not (gone and name.startswith(gone))
        }

    def with_writes(
        self, snapshot: SessionSnapshot, key: str, writes: Sequence[tuple[str, Any]], task_path: str
    ) -> SessionSnapshot:
        """*snapshot* with a task's writes. Ordinary writes that are there stay; special ones are replaced.

        Returns *snapshot* itself if that changes nothing.
        """
        before = snapshot.plugins.get(key) or {"writes": ()}
        kept = {each[0]: each for each in before["writes"]}
        replace = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        for index, (channel, value) in enumerate(writes):
            place = WRITES_IDX_MAP.get(channel, index)
            if replace or place not in kept:
                kept[place] = [place, channel, self.packed(value)]
        if list(kept.values()) == list(before["writes"]):
            return snapshot
        section = {"path": before.get("path", task_path), "writes": [kept[place] for place in sorted(kept)]}
        return snapshot.evolve(plugins={**snapshot.plugins, key: section})

    # Reading ---------------------------------------------------------------------------------------------

    def checkpoint(self, snapshot: SessionSnapshot, messages: MessageMap) -> dict[str, Any]:
        """The checkpoint that *snapshot* holds; *messages* has what was rebuilt before."""
        core = core_of(snapshot) or {}
        checkpoint: dict[str, Any] = self.unpacked(core["checkpoint"])
        values = {
            name.removeprefix(_CHANNEL): self.unpacked(value)
            for name, value in snapshot.plugins.items()
            if name.startswith(_CHANNEL)
        }
        if core["talk"]:
            talk = messages.rebuilt(snapshot.messages)
            values[_MESSAGES] = _DeltaSnapshot(talk) if core["talk"] == "delta" else talk
        return {**checkpoint, "channel_values": values}

    def has_value(self, snapshot: SessionSnapshot, channel: str) -> bool:
        """Whether the checkpoint stores a value of *channel*."""
        core = core_of(snapshot) or {}
        return _CHANNEL + channel in snapshot.plugins or (channel == _MESSAGES and bool(core.get("talk")))

    def value(self, snapshot: SessionSnapshot, channel: str) -> Any:
        """The stored value of one channel."""
        if _CHANNEL + channel in snapshot.plugins:
            return self.unpacked(snapshot.plugins[_CHANNEL + channel])
        return self.checkpoint(snapshot, MessageMap(self))["channel_values"][channel]

    def pending(
        self, ns: str, checkpoint_id: str, *snapshots: SessionSnapshot, channels: frozenset[str] | None = None
    ) -> list[tuple[str, str, Any]]:
        """The pending writes of a checkpoint, in the order in which live execution applies them."""
        prefix = writes_prefix(ns, checkpoint_id)
        found = {each[:2]: each for snapshot in snapshots for each in _written(snapshot, prefix)}
        ordered = sorted(found.values(), key=lambda each: writes_sort_key(each[2], each[0], each[1]))
        return [
            (task, channel, self.unpacked(value))
            for task, _, _, channel, value in ordered
            if channels is None or channel in channels
        ]


def _written(snapshot: SessionSnapshot, prefix: str) -> Iterator[tuple[str, int, str, str, Any]]:
    for name, section in snapshot.plugins.items():
        if name.startswith(prefix):
            for place, channel, value in section["writes"]:
                yield name.removeprefix(prefix), place, section["path"], channel, value


def _time(checkpoint: Mapping[str, Any], base: SessionSnapshot) -> Any:
    from datetime import datetime  # noqa: PLC0415 — beside its only use

    try:
        moment = datetime.fromisoformat(checkpoint["ts"])
    except (KeyError, TypeError, ValueError):
        return base.updated_at
    return moment if moment.tzinfo else base.updated_at


def _model(messages: Sequence[Message]) -> str | None:
    for message in reversed(messages[-8:]):
        about = message.metadata.get("langchain", {}).get("response_metadata", {})
        name = about.get("model_name") or about.get("model")
        if isinstance(name, str):
            return name
    return None
