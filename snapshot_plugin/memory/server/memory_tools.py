"""The tools over the project memory."""

from __future__ import annotations

import json
from typing import Annotated, Any

from mcp.server.mcpserver.tools.base import Tool
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.memory.batch import Saved
from snapshot_plugin.memory.context import bounded
from snapshot_plugin.memory.memory import ProjectMemory
from snapshot_plugin.memory.names import (
    API_SCHEMA,
    BASELINES,
    DEFAULT,
    DOCUMENTS,
    ERRORS,
    NOISE,
    PERFORMANCE,
    namespace_of,
)
from snapshot_plugin.memory.server.answers import Action, Comparison, Receipt, SessionStoreAnswer, stats_answer
from snapshot_plugin.memory.server.failures import text_result
from snapshot_plugin.memory.server.project import Served
from snapshot_plugin.memory.server.tools import READS, WRITES, tool
from snapshot_plugin.memory.understand import understand
from snapshot_plugin.memory.vocabulary import CLOSED

__all__ = ["MEMORY_TOOLS"]

_STORE = """Remember things for later sessions in this project, and recall them.

save: keep `data` (any JSON) as `key` of `namespace`; on disk when this returns. The answer says what was
understood, what was ignored, and how to do it better. load: get it back. list: the keys of a namespace; without a
namespace, all namespaces. delete: remove an entry; with namespace "*" and confirm=true, everything. stats: how much
is stored.

Namespaces with a meaning (in the first four, saving adds to what is known and never resets it, and `key` may be
left out):
- errors: {"message": "TypeError: x is undefined", "file": "app.js", "line": 42, "count": 3}; with "resolved": true
  or a date once it is fixed. Lists and maps of errors work too.
- api_schema: {"method": "GET", "path": "/api/users", "response": {"id": 7}}, or ["GET /api/users", "POST /login"]
- performance: {"GET /api/users": {"avg_ms": 150, "p95": 300}}, or {"endpoint": "GET /users", "latency": "150ms"}
- noise: ["ResizeObserver*", {"pattern": "favicon.ico", "reason": "dev server"}]; matching errors are not listed
- baselines: key "login", data {"status": 200, "response": {"user": {"id": 7}}}: how a feature behaves when it is
  right; of a response the shape is kept. compare_baseline finds regressions.
- global: key "style", data {"indent": 2}: preferences for all projects of this user
- any other name is yours, as decisions: key "database", data {"choice": "sqlite", "why": "one file"}
Without a namespace, "default" is used. Secrets are taken out."""

_CONTEXT = """Call this first: what earlier sessions in this project left for you.

Session count and last session, baselines, known API endpoints and how many were seen lately, noise rules (in effect
from now on), unresolved and recently resolved errors, endpoints that have become slow, preferences, and the keys of
all other namespaces. About 8 KB at most; left_out says how to get the rest."""

_ERROR = """Record an error that occurred, or that one is resolved. Counts add up over sessions.

record_error(error="TypeError: x is undefined at app.js:42"), or with what you know: record_error(message="x is
undefined", file="app.js", line=42, count=3). Once fixed: record_error(fingerprint="TypeError_app.js:42",
resolved=true); the answer says after how many sessions. Errors that match a noise rule are only counted."""

_ENDPOINT = """Record that an endpoint of the project's API was seen, and how long it took.

observe_endpoint(endpoint="GET /api/users", response={"id": 7, "name": "Ann"}, ms=150), or method="GET",
path="/api/users". Only the shape of the response is kept. The answer says when an endpoint became slower than in
earlier sessions; you need not know the old value."""

_NOISE = """Add a rule for what is not worth looking at, or remove one. It holds at once and in later sessions.

set_noise(pattern="ResizeObserver*", reason="browser noise"); set_noise(pattern="ResizeObserver*", remove=true). A
text is noise if it contains the pattern, in which * stands for anything."""

_COMPARE = """Compare what a feature does now with its baseline from an earlier session.

compare_baseline(name="login", observed={"status": 200, "response": {"user": {"id": 9}}}). Reports fields that are
missing or of another type, changed values, and times that grew by more than half; new fields are no regression.
Save a baseline with session_store(action="save", namespace="baselines", key="login", data=...)."""

_More = Annotated[dict[str, Any] | None, Field(description="Anything else you know about it.")]
_Page = Annotated[int | None, Field(ge=0, description="For load of a long list: where to start, how many.")]


async def session_store(
    *,
    project: Served,
    action: Annotated[Action, Field(description="What to do.")],
    namespace: Annotated[str | None, Field(description='A logical group; "default" if left out.')] = None,
    key: Annotated[str | None, Field(description="The entry's name. Needed for save, load, delete.")] = None,
    data: Annotated[Any, Field(description="For save: any JSON value but null.")] = None,
    confirm: Annotated[bool, Field(description='For delete of namespace "*": must be true.')] = False,
    start: _Page = None,
    limit: _Page = None,
    more: Annotated[dict[str, Any] | None, Field(description="Not needed.")] = None,
) -> SessionStoreAnswer:
    memory = await project.memory()
    if more:
        data = next(
            (more[name] for name in ("value", "content", "body", "json") if name in more and data is None), data
        )
        key = key or next((more[name] for name in ("name", "id") if isinstance(more.get(name), str)), None)
    if action == "stats":
        answer = SessionStoreAnswer(action=action, stats=stats_answer(await memory.stats()))
    elif action == "list":
        answer = await _listed(memory, namespace)
    elif action == "delete" and namespace == "*":
        answer = await _cleared(memory, confirm=confirm)
    else:
        answer = await _entry(memory, action, namespace, key, data, start, limit)
    return answer.model_copy(update={"persistence": memory.persistence, "notices": list(memory.notices)})


async def load_session_context(*, project: Served) -> CallToolResult:
    memory = await project.memory()
    return text_result(await context_text(memory))


async def context_text(memory: ProjectMemory) -> str:
    """The context of a session as compact JSON."""
    answer = bounded(await memory.load_context(), await memory.preferences())
    return json.dumps(answer, ensure_ascii=False)


async def record_error(
    *,
    project: Served,
    error: Annotated[Any, Field(description="The message, or an object or list with what you know.")] = None,
    fingerprint: Annotated[
        str | None, Field(description="The error's name; made from the rest if left out.")
    ] = None,
    count: Annotated[int | None, Field(ge=1, description="How often it occurred; 1 if left out.")] = None,
    resolved: Annotated[bool | str, Field(description="true or a date once it is fixed.")] = False,
    more: _More = None,
) -> Receipt:
    memory = await project.memory()
    rest = {"fingerprint": fingerprint, "count": count, **(more or {})}
    data = _merged(error, "message", rest)
    if str(resolved).lower() in CLOSED:
        resolved = True
    if resolved is True and not data.keys() - {"fingerprint", "message"}:
        name = fingerprint or understand(ERRORS, "history", data, project.now()).entries[0]["fingerprint"]
        return _receipt(memory, await memory.resolve_error(name))
    if resolved:
        data["resolved"] = resolved
    return _receipt(memory, await memory.save(ERRORS, DOCUMENTS[ERRORS].key, data))


async def observe_endpoint(
    *,
    project: Served,
    endpoint: Annotated[Any, Field(description='As "GET /api/users".')] = None,
    method: str | None = None,
    path: str | None = None,
    response: Annotated[Any, Field(description="What it answered, or its shape.")] = None,
    ms: Annotated[Any, Field(description='How long it took: milliseconds, or "1.2s".')] = None,
    more: _More = None,
) -> Receipt:
    memory = await project.memory()
    target = {"method": method, "path": path, **_merged(endpoint, "endpoint", {})}
    target = {name: value for name, value in target.items() if value is not None}
    timed = {**target, **(more or {}), **({} if ms is None else {"ms": ms})}
    times = ms is not None or understand(PERFORMANCE, "endpoints", timed, project.now()).entries
    seen = target | ({} if response is None else {"response": response}) | ({} if times else more or {})
    saved = await memory.save(API_SCHEMA, DOCUMENTS[API_SCHEMA].key, seen)
    if times:
        timing = await memory.save(PERFORMANCE, DOCUMENTS[PERFORMANCE].key, timed)
        saved = saved.evolve(
            understood=saved.understood + timing.understood, ignored=saved.ignored + timing.ignored,
            better=tuple(dict.fromkeys(saved.better + timing.better)),
        )  # fmt: skip
    return _receipt(memory, saved)


async def set_noise(
    *,
    project: Served,
    pattern: Annotated[
        Any, Field(description="Text that noise contains; * stands for anything. Or a list.")
    ] = None,
    reason: str | None = None,
    remove: Annotated[bool, Field(description="true to remove the rule.")] = False,
    auto: Annotated[bool, Field(description="true if it was detected, not chosen by a person.")] = False,
    more: _More = None,
) -> Receipt:
    memory = await project.memory()
    about = {"reason": reason, "auto": auto or None, "remove": remove or None, **(more or {})}
    patterns = pattern if isinstance(pattern, list) else [pattern]
    rules = [_merged(each, "pattern", about) for each in patterns]
    return _receipt(memory, await memory.save(NOISE, DOCUMENTS[NOISE].key, rules))


async def compare_baseline(
    *,
    project: Served,
    name: Annotated[str, Field(description="The baseline's key.")],
    observed: Annotated[Any, Field(description="What you see now, in the form the baseline was saved in.")] = None,
    more: Annotated[dict[str, Any] | None, Field(description="Not needed.")] = None,
) -> Comparison:
    memory = await project.memory()
    if observed is None:
        observed = (more or {}).get("data", more or None)
    if observed is None:
        raise InvalidInput("there is nothing to compare", hint="pass what you see now as observed")
    found = await memory.compare_baseline(name, observed)
    regressions = [str(each) for each in found if each.kind != "added"]
    additions = [str(each) for each in found if each.kind == "added"]
    return Comparison(
        name=name, same=not found, is_regression=bool(regressions), regressions=regressions, added=additions
    )


def _merged(given: Any, name: str, rest: dict[str, Any]) -> dict[str, Any]:
    """One entry from a tool's main argument (text, or an object) and its other arguments."""
    known = {key: value for key, value in rest.items() if value is not None}
    if isinstance(given, dict):
        return {**given, **known}
    if isinstance(given, list):
        return {"entries": given}
    return known if given is None else {name: given, **known}


def _receipt(memory: ProjectMemory, saved: Saved) -> Receipt:
    return Receipt(
        understood=list(saved.understood), ignored=list(saved.ignored), better=list(saved.better),
        redacted=saved.redacted or None, trimmed=saved.trimmed or None,
        persistence=memory.persistence, notices=list(memory.notices),
    )  # fmt: skip


async def _entry(  # noqa: PLR0917 — the arguments of the tool
    memory: ProjectMemory, action: str, namespace: str | None, key: str | None, data: Any,
    start: int | None, limit: int | None,
) -> SessionStoreAnswer:  # fmt: skip
    space = namespace_of(namespace)
    if key is None and space in DOCUMENTS:
        key = DOCUMENTS[space].key
    if key is None:
        raise InvalidInput(
            f"{action} needs a key", hint=f'session_store(action="{action}", namespace="{space}", key=…)'
        )
    named = {"action": action, "namespace": space, "key": key}
    if action == "load":
        return SessionStoreAnswer(**named, **_page(await memory.load(space, key), start, limit))
    if action == "delete":
        await memory.delete(space, key)
        return SessionStoreAnswer(**named)
    if data is None:
        raise InvalidInput("save needs data", hint="pass data=…, any JSON value but null")
    saved = await memory.save(space, key, data)
    return SessionStoreAnswer(
        **named, bytes=saved.bytes, evicted=list(saved.evicted) or None, trimmed=saved.trimmed or None,
        redacted=saved.redacted or None, understood=list(saved.understood) or None,
        ignored=list(saved.ignored) or None, better=[*saved.better, *_advice(namespace, space, data)] or None,
    )  # fmt: skip


def _advice(namespace: str | None, space: str, data: Any) -> list[str]:
    if namespace is None:
        return [f'it is in the namespace "{DEFAULT}"; a namespace of its own is easier to find, as "decisions"']
    if space == BASELINES and not isinstance(data, dict | list):
        return ['a baseline that is an object can be compared field by field, as {"status": 200, "response": {…}}']
    return []


def _page(data: Any, start: int | None, limit: int | None) -> dict[str, Any]:
    """All of an entry; with *start* or *limit*, a part of the list in it, newest last, and how long that is."""
    if start is None and limit is None:
        return {"data": data}
    field = (
        next((name for name, value in data.items() if isinstance(value, list)), None)
        if isinstance(data, dict)
        else None
    )
    items = data[field] if field is not None else data
    if not isinstance(items, list):
        return {"data": data}
    first = start or 0
    page = items[first : None if limit is None else first + limit]
    return {"data": page if field is None else {field: page}, "start": first, "total": len(items)}


async def _listed(memory: ProjectMemory, namespace: str | None) -> SessionStoreAnswer:
    if namespace is None:
        counts = {name: len(keys) for name, keys in (await memory.namespaces()).items()}
        return SessionStoreAnswer(action="list", namespaces=counts)
    return SessionStoreAnswer(
        action="list", namespace=namespace_of(namespace), keys=list(await memory.list(namespace))
    )


async def _cleared(memory: ProjectMemory, *, confirm: bool) -> SessionStoreAnswer:
    if not confirm:
        raise InvalidInput(
            "this would delete everything the project's memory holds", hint="ask the user, then pass confirm=true"
        )
    await memory.clear()
    return SessionStoreAnswer(action="delete", namespace="*", cleared=True)


_DELETES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

MEMORY_TOOLS: list[Tool] = [
    tool(load_session_context, "What earlier sessions left", _CONTEXT, READS, structured=False),
    tool(session_store, "Remember and recall", _STORE, _DELETES),
    tool(record_error, "Record or resolve an error", _ERROR, WRITES),
    tool(observe_endpoint, "Record an endpoint and its time", _ENDPOINT, WRITES),
    tool(set_noise, "Add or remove a noise rule", _NOISE, WRITES),
    tool(compare_baseline, "Compare with a baseline", _COMPARE, READS),
]
