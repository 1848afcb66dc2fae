"""Routes of ``/api/v1`` that only read."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from snapshot_plugin.errors import InvalidInput, SnapshotError
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.comparing import compare_targets, shortened
from snapshot_plugin.operations.conversation import messages, whole_message
from snapshot_plugin.operations.exporting import FORMS, export
from snapshot_plugin.operations.forget import in_the_trash
from snapshot_plugin.operations.references import Target, exactly
from snapshot_plugin.operations.searching import SearchRequest, search
from snapshot_plugin.operations.sessions import Selection, listed, tagged_before
from snapshot_plugin.operations.showing import Shown, history
from snapshot_plugin.operations.statistics import statistics
from snapshot_plugin.operations.text import moment, with_store
from snapshot_plugin.operations.undo import operations
from snapshot_plugin.web.answers import answer, json_answer
from snapshot_plugin.web.site import site_of

__all__ = ["ROUTES"]

_VERSION = version("snapshot-plugin")
_PAGE = 500
_MESSAGES = 100
_MOST = 500
_LONGEST_COMPARED = 2_000
"""The most characters of a text in a comparison; the page shows 1,500."""
_ENDINGS = {"bundle": "asnap", "markdown": "md", "html": "html", "json": "json"}


def _number(request: Request, name: str, default: int | None = None) -> int | None:
    text = request.query_params.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"{name}={text!r} is not a number") from None


def _moment(request: Request, name: str, now: datetime, *, end: bool = False) -> datetime | None:
    text = request.query_params.get(name)
    return moment(text, now, end=end) if text else None


async def _about(request: Request) -> Response:
    """What the page needs to know about the server."""
    site = site_of(request)
    return json_answer(
        {
            "schema_version": 1,
            "kind": "ui",
            "version": _VERSION,
            "store": site.config.storage_path,
            "option": with_store("", site.place),
            "encrypted": site.is_encrypted,
            "read_only": site.read_only,
        }
    )


async def _sessions(request: Request) -> Response:
    site, asked = site_of(request), request.query_params
    work, rows, tags = site.work, await site.rows(), tuple(asked.getlist("tag"))
    selection = Selection(
        below=asked.get("project") or None,
        agent=asked.get("agent") or None,
        since=_moment(request, "since", work.now),
        until=_moment(request, "until", work.now, end=True),
        tags=tags,
        tagged_before=await tagged_before(site.store, rows, tags),
        live=asked.get("live") == "1",
    )
    whole = listed(rows, selection, encrypted=site.is_encrypted, as_of=work.now)
    shown = whole.sessions
    if after := asked.get("after"):
        place = next((n for n, row in enumerate(shown) if row.session_id == after), -1)
        shown = shown[place + 1 :]
    limit = max(1, _number(request, "limit", _PAGE) or _PAGE)
    return answer(replace(whole, sessions=shown[:limit]))


async def _session(request: Request) -> Response:
    site = site_of(request)
    row = await site.row(request.path_params["id"])
    at = _number(request, "at")
    if row.seq == 0:  # it has only a spool yet
        return answer(Shown(session=row, snapshot=0, as_of=site.work.now))
    try:
        shown = await site.shown(await _target(request, at))
    except SnapshotError:
        if row.state == "ok":
            raise
        return answer(Shown(session=row, snapshot=0, as_of=site.work.now))  # the row says what is wrong with it
    return answer(replace(shown, session=row, as_of=site.work.now))


async def _target(request: Request, at: int | None) -> Target:
    target = await site_of(request).target(request.path_params["id"])
    return target if at is None else target._replace(seq=at)


async def _history(request: Request) -> Response:
    site = site_of(request)
    return answer(await history(site.work, site.store, await _target(request, None)))


async def _messages(request: Request) -> Response:
    site, at = site_of(request), _number(request, "at")
    session_id = await site.session_id(request.path_params["id"])
    first = _number(request, "from", 1) or 1
    limit = min(_MOST, max(1, _number(request, "limit", _MESSAGES) or _MESSAGES))
    tail = await site.spooled(session_id) if at is None else None
    return answer(await messages(site.store, session_id, at=at, first=first, limit=limit, spooled=tail))


async def _message(request: Request) -> Response:
    site, at = site_of(request), _number(request, "at")
    session_id, number = await site.session_id(request.path_params["id"]), request.path_params["number"]
    tail = await site.spooled(session_id) if at is None else None
    return answer(await whole_message(site.store, session_id, number, at=at, spooled=tail))


async def _resume(request: Request) -> Response:
    """The command that resumes a session, for the user to copy: the server itself starts nothing."""
    site = site_of(request)
    session_id = await site.session_id(request.path_params["id"])
    command = with_store(f"asnap resume {shlex.quote(as_reference(session_id))}", site.place)
    return json_answer({"schema_version": 1, "kind": "resume_command", "command": command})


async def _export(request: Request) -> Response:
    """A session as a file; with ``about=1``, what the file contains and how many secrets were removed."""
    site, asked = site_of(request), request.query_params
    target = await _target(request, _number(request, "at"))
    form = next((name for name in FORMS if name == asked.get("form", "html")), None)
    if form is None:
        raise InvalidInput(f"{asked.get('form')!r} is not a form", hint=f"one of {', '.join(FORMS)}")
    clean = asked.get("redact", "1") != "0"
    made = await export(site.work, site.store, [target.session_id], form=form, clean=clean, at=target.seq)
    if asked.get("about") == "1":
        return answer(made.about)
    headers = {
        "content-disposition": f'attachment; filename="session.{_ENDINGS[form]}"',
        "cache-control": "no-store",
    }
    return Response(made.data, headers=headers, media_type="application/octet-stream")


async def _diff(request: Request) -> Response:
    site, asked = site_of(request), request.query_params
    if not asked.get("a"):
        raise InvalidInput("the parameter a is missing", hint="a and b are sessions, or snapshots: id@3")
    metas = await site.metas()
    one, other = exactly(asked["a"], metas), exactly(asked["b"], metas) if asked.get("b") else None
    found = await compare_targets(site.store, one, other)
    return answer(shortened(found, _LONGEST_COMPARED))


async def _search(request: Request) -> Response:
    site, asked = site_of(request), request.query_params
    work = site.work
    wanted = SearchRequest(
        query=asked.get("q", ""),
        ref=asked.get("ref") or None,
        cwd=asked.get("project") or None,
        agent=asked.get("agent") or None,
        tags=tuple(asked.getlist("tag")),
        role=asked.get("role") or None,
        tool=asked.get("tool") or None,
        since=_moment(request, "since", work.now),
        until=_moment(request, "until", work.now, end=True),
        limit=max(1, _number(request, "limit", 50) or 50),
    )
    found = await search(work, site.store, wanted, at_once=True)
    if found.unindexed:
        site.index_soon()
    return answer(found)


async def _stats(request: Request) -> Response:
    site, asked = site_of(request), request.query_params
    by = asked.get("by", "day")
    if by not in ("day", "week", "agent", "project"):
        raise InvalidInput(f"cannot group by {by!r}", hint="day, week, agent or project")
    quick = asked.get("quick") == "1"
    return answer(await statistics(site.work, site.store, by=by, quick=quick))


async def _operations(request: Request) -> Response:
    site = site_of(request)
    return answer(await operations(site.work, site.store))


async def _trash(request: Request) -> Response:
    site = site_of(request)
    return answer(await in_the_trash(site.work, site.store))


ROUTES = [
    Route("/api/v1/about", _about),
    Route("/api/v1/sessions", _sessions),
    Route("/api/v1/sessions/{id}", _session),
    Route("/api/v1/sessions/{id}/history", _history),
    Route("/api/v1/sessions/{id}/messages", _messages),
    Route("/api/v1/sessions/{id}/messages/{number:int}", _message),
    Route("/api/v1/sessions/{id}/resume", _resume),
    Route("/api/v1/sessions/{id}/export", _export),
    Route("/api/v1/diff", _diff),
    Route("/api/v1/search", _search),
    Route("/api/v1/stats", _stats),
    Route("/api/v1/operations", _operations),
    Route("/api/v1/trash", _trash),
]
