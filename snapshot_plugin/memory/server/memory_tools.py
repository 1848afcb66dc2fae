"""The tools over the project memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from mcp.server.mcpserver.tools.base import Tool
from pydantic import BeforeValidator

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.memory.changes import Saved
from snapshot_plugin.memory.context import bounded, few
from snapshot_plugin.memory.entries import KINDS, EndpointEntry, ErrorEntry, NoiseEntry
from snapshot_plugin.memory.files import API_SCHEMA, BASELINES, DEFAULT, ERRORS, NOISE, PERFORMANCE, namespace_of
from snapshot_plugin.memory.project_memory import ProjectMemory
from snapshot_plugin.memory.server.tools import (
    ADDS,
    DELETES,
    READS,
    Answer,
    Served,
    answer_of,
    argument,
    entry_tool,
    tool,
)

__all__ = ["MEMORY_TOOLS", "load_session_context"]

_Page = Annotated[int | None, argument("For list, and load of a long list: where to start, how many.", ge=0)]
_ACTIONS = {
    **dict.fromkeys(("set", "put", "store", "write", "add", "update", "remember"), "save"),
    **dict.fromkeys(("get", "read", "recall", "fetch", "show"), "load"),
    **dict.fromkeys(("remove", "forget", "clear"), "delete"),
    **dict.fromkeys(("keys", "ls"), "list"), "info": "stats",
}  # fmt: skip
_MOST_KEYS, _MOST_ENTRIES, _MOST_LINES = 100, 50, 20
"""How many keys, entries of a document, and lines of a receipt an answer has unless more are asked for."""
_KEY = ("key", "name", "id")
_DATA = ("data", "value", "content", "body", "json")
_SEEN = ("observed", "data", "observation", "current", "actual")
_Action = Annotated[
    Literal["save", "load", "list", "delete", "stats"],
    BeforeValidator(lambda said: _ACTIONS.get(str(said).strip().lower(), str(said).strip().lower())),
]
_Number = BeforeValidator(lambda said: str(said) if isinstance(said, int) else said)


async def session_store(
    *,
    project: Served,
    action: Annotated[_Action, argument("What to do.")],
    namespace: Annotated[str | None, argument('A logical group; "default" if left out.')] = None,
    key: Annotated[str | None, _Number, argument("The entry's name. Needed for save, load, delete.", *_KEY)] = None,
    data: Annotated[Any, argument("For save: any JSON value but null.", *_DATA)] = None,
    confirm: Annotated[bool, argument("For delete of a whole namespace: must be true.")] = False,
    start: _Page = None,
    limit: _Page = None,
    more: dict[str, Any] | None = None,
) -> Answer:
    """Remember things for later sessions in this project, and recall them.

    save: keep `data` (any JSON) as `key` of `namespace`; on disk when this returns. load: get it back. list: what a
    namespace holds; without a namespace, all namespaces. delete: remove an entry; without a key and with
    confirm=true, the whole namespace, and with namespace "*" everything. stats: how much is stored.

    Namespaces with a meaning. The first four count entries: one, a list, or a map by name. Saving adds to what is
    known and never resets it, and `key` may be left out. Other data is kept under its key, and not counted.
    - errors: {"message": "TypeError: x is undefined", "file": "app.js", "line": 42, "count": 3}; with "resolved":
      true or a date once it is fixed
    - api_schema: {"endpoint": "GET /api/users", "response": {"id": 7}, "status": 200}, or ["GET /api/users"]
    - performance: {"endpoint": "GET /api/users", "avg_ms": 150, "p95_ms": 300}, or {"GET /api/users": 150}
    - noise: ["ResizeObserver*", {"pattern": "favicon.ico", "reason": "dev server"}]; matching errors are not listed
    - baselines: key "login", data {"status": 200, "response": {"user": {"id": 7}}}: how a feature behaves when it
      is right; of a response the shape is kept. compare_baseline finds regressions.
    - global: key "style", data {"indent": 2}: preferences for all projects of this user
    - any other name is yours, as decisions: key "database", data {"choice": "sqlite", "why": "one file"}
    Without a namespace, "default" is used. Secrets are taken out.
    """
    memory = await project.memory()
    answer: Answer
    if action == "stats":
        answer = {"stats": await _stats(memory)}
    elif action == "list" and namespace in (None, "*"):
        answer = {"namespaces": {name: len(keys) for name, keys in (await memory.namespaces()).items()}}
    elif action == "list":
        keys = list(await memory.list(namespace))
        answer = {"namespace": namespace_of(namespace), **_page("keys", keys, start, limit, _MOST_KEYS)}
    elif action == "delete" and (namespace == "*" or key in (None, "*")):
        answer = await _cleared(memory, namespace, is_sure=confirm)
    else:
        data, ignored = (data, more or {}) if data is not None else (more or None, {})
        name = await _name(memory, action, namespace, key, data)
        answer = {"namespace": name[0], "key": name[1]}
        if action == "load":
            answer |= _loaded(name, await memory.load(*name), start, limit)
        elif action == "delete":
            await memory.delete(*name)
        elif data is None:
            raise InvalidInput("save needs data", hint="pass data=…, any JSON value but null")
        else:
            saved = await memory.save(*name, data)
            unused = (f"{argument!r}: not an argument; put it into data" for argument in ignored)
            advised = saved.evolve(
                ignored=(*saved.ignored, *unused), better=(*saved.better, *_advice(namespace, data))
            )
            answer |= {field: value for field, value in _receipt(memory, advised).items() if value != []}
    return {"action": action, **answer, "persistence": memory.persistence, "notices": list(memory.notices)}


async def load_session_context(*, project: Served) -> Answer:
    """Call this first: what earlier sessions in this project left for you.

    Session count and last session, baselines, known API endpoints and how many were seen lately, noise rules (in
    effect from now on), unresolved and recently resolved errors, endpoints that have become slow, preferences, and
    the keys of all other namespaces. About 8 KB at most; left_out says how to get the rest.
    """
    memory = await project.memory()
    return bounded(await memory.load_context(), await memory.preferences())


async def record_error(*, project: Served, entry: ErrorEntry) -> Answer:
    """Record an error that occurred, or that one is resolved. Counts add up over sessions.

    record_error(message="TypeError: x is undefined at app.js:42"), or with what you know:
    record_error(message="x is undefined", type="TypeError", file="app.js", line=42, count=3). Once fixed:
    record_error(fingerprint="TypeError_app.js:42", resolved=true); the answer says after how many sessions. Errors
    that match a noise rule are only counted. Record a list with session_store(action="save", namespace="errors").
    """
    memory = await project.memory()
    if entry.resolved_at is True:
        return _receipt(memory, await memory.resolve_error(None, entry.known()))
    return _receipt(memory, await memory.save(*KINDS[ERRORS].document, entry.known()))


async def observe_endpoint(*, project: Served, entry: EndpointEntry) -> Answer:
    """Record that an endpoint of the project's API was seen, and how long it took.

    observe_endpoint(endpoint="GET /api/users", response={"id": 7, "name": "Ann"}, ms=150), or method="GET",
    path="/api/users". Only the shape of the response is kept. The answer says when an endpoint became slower than
    in earlier sessions; you need not know the old value.
    """
    memory = await project.memory()
    return _receipt(memory, await memory.save(*KINDS[API_SCHEMA].document, entry.known()))


async def set_noise(*, project: Served, entry: NoiseEntry) -> Answer:
    """Add a rule for what is not worth looking at, or remove one. It holds at once and in later sessions.

    set_noise(pattern="ResizeObserver*", reason="browser noise"); set_noise(pattern="ResizeObserver*", remove=true).
    A text is noise if it contains the pattern, in which * stands for anything.
    """
    memory = await project.memory()
    return _receipt(memory, await memory.save(*KINDS[NOISE].document, entry.known()))


async def compare_baseline(
    *,
    project: Served,
    name: Annotated[
        str, _Number, argument("The baseline's key.", "name", "key", "baseline", "baseline_name", "feature")
    ],
    observed: Annotated[Any, argument("What you see now, in the form the baseline was saved in.", *_SEEN)] = None,
    more: dict[str, Any] | None = None,
) -> Answer:
    """Compare what a feature does now with its baseline from an earlier session.

    compare_baseline(name="login", observed={"status": 200, "response": {"user": {"id": 9}}}). Reports fields that
    are missing or of another type, changed values, and times that grew by more than half; new fields are no
    regression. Save a baseline with session_store(action="save", namespace="baselines", key="login", data=...).
    """
    memory = await project.memory()
    seen = observed if observed is not None else more or None
    if seen is None:
        raise InvalidInput("there is nothing to compare", hint="pass what you see now as observed")
    name = name.removeprefix(f"{BASELINES}/")
    found = await memory.compare_baseline(name, seen)
    regressions = [str(each) for each in found if each.kind != "added"]
    added = [str(each) for each in found if each.kind == "added"]
    judged = {"name": name, "same": not found, "is_regression": bool(regressions)}
    return {**judged, "regressions": regressions, "added": added}


async def _name(
    memory: ProjectMemory, action: str, namespace: str | None, key: str | None, data: Any
) -> tuple[str, str]:
    """The entry's name: ``decisions/db`` may be one argument, and a baseline may contain its own name."""
    if namespace is None and key is not None and re.match(r"[a-z_]+/.", key):
        namespace, _, key = key.partition("/")
    space = namespace_of(namespace)
    if key is None and space == BASELINES and isinstance(data, dict):
        key = next((data[field] for field in ("name", "feature") if isinstance(data.get(field), str)), None)
    key = KINDS[space].document.key if key is None and space in KINDS else key
    if key is None:
        keys = "" if action == "save" else f"; there are: {_named(await memory.list(space))}"
        raise InvalidInput(f"{action} needs a key", hint=f"pass key, the name of the entry in {space!r}{keys}")
    return space, key


async def _cleared(memory: ProjectMemory, namespace: str | None, *, is_sure: bool) -> Answer:
    """Delete a whole namespace, or everything, if the agent is sure."""
    if namespace == "*":
        if not is_sure:
            what = "this would delete everything the project's memory holds"
            raise InvalidInput(what, hint="ask the user, then pass confirm=true")
        await memory.clear()
        return {"namespace": "*", "cleared": True}
    space = namespace_of(namespace)
    if not is_sure:
        raise InvalidInput(
            "delete needs a key",
            hint=f"there are: {_named(await memory.list(space))}; or pass confirm=true to delete all of {space!r}",
        )
    await memory.clear(space)
    return {"namespace": space, "cleared": True}


def _named(keys: Sequence[str]) -> str:
    return ", ".join(few(keys, _MOST_LINES)) or "none"


def _receipt(memory: ProjectMemory, saved: Saved) -> Answer:
    return answer_of(
        **{field: few(getattr(saved, field), _MOST_LINES, 400) for field in ("understood", "ignored", "better")},
        bytes=saved.bytes or None, evicted=list(saved.evicted) or None, trimmed=saved.trimmed or None,
        redacted=saved.redacted, persistence=memory.persistence, notices=list(memory.notices),
    )  # fmt: skip


def _advice(namespace: str | None, data: Any) -> list[str]:
    if namespace is None:
        return [f'it is in the namespace "{DEFAULT}"; a namespace of its own is easier to find, as "decisions"']
    if namespace_of(namespace) == BASELINES and not isinstance(data, dict | list):
        return ['a baseline that is an object can be compared field by field, as {"status": 200, "response": {…}}']
    return []


def _loaded(name: tuple[str, str], data: Any, start: int | None, limit: int | None) -> Answer:
    """An entry; of a long list in it, the part that *start* and *limit* name; of a document, its newest entries."""
    field = (
        next((n for n, value in data.items() if isinstance(value, list)), None) if isinstance(data, dict) else None
    )
    items = data if field is None else data[field]
    is_document = name[0] in KINDS and name == KINDS[name[0]].document
    if not isinstance(items, list) or (start is None and limit is None and not is_document):
        return {"data": data}
    page = _page("data", items, start, limit, _MOST_ENTRIES)
    return page if field is None else {**page, "data": {field: page["data"]}}


def _page(what: str, items: list[Any], start: int | None, limit: int | None, most: int) -> Answer:
    """The last *most* of *items*, or what *start* and *limit* name; where that starts, and how many there are."""
    is_asked = start is not None or limit is not None
    first = start or 0 if is_asked else max(0, len(items) - most)
    page = items[first : None if limit is None else first + limit]
    return {what: page} | ({"start": first, "total": len(items)} if is_asked or len(page) < len(items) else {})


async def _stats(memory: ProjectMemory) -> Answer:
    stats = await memory.stats()
    counted = {API_SCHEMA: "endpoints", PERFORMANCE: "endpoints"}
    return {
        "project": stats.project,
        "total_size_bytes": stats.total_bytes,
        "limit_bytes": stats.limit_bytes,
        "other_projects_bytes": stats.other_projects_bytes,
        "namespaces": {
            name: {"size": space.bytes, counted.get(name, "entries"): space.entries}
            for name, space in stats.namespaces.items()
        },
        "oldest_data": None if stats.oldest is None else f"{stats.oldest:%Y-%m-%dT%H:%M:%SZ}",
        "sessions_recorded": stats.session_count,
    }


MEMORY_TOOLS: list[Tool] = [
    tool(load_session_context, "What earlier sessions left", READS, structured=False),
    tool(session_store, "Remember and recall", DELETES),
    entry_tool(record_error, "Record or resolve an error", ADDS, ErrorEntry),
    entry_tool(observe_endpoint, "Record an endpoint and its time", ADDS, EndpointEntry),
    entry_tool(set_noise, "Add or remove a noise rule", ADDS, NoiseEntry),
    tool(compare_baseline, "Compare with a baseline", READS),
]
