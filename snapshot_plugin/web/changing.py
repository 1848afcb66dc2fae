"""Routes that change something. Each change is an operation that the page and ``asnap undo`` can undo."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.manager.predeploy import ask_everyone
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.forget import ForgetJob
from snapshot_plugin.operations.organise import Label, TagChange, annotate, fork, pin, rename, tag
from snapshot_plugin.operations.references import exactly
from snapshot_plugin.operations.undo import undo
from snapshot_plugin.web.answers import answer, json_answer
from snapshot_plugin.web.site import Site, site_of

__all__ = ["ROUTES"]

_LARGEST = 1 << 20
_PATIENCE = 10.0
"""Seconds that a live session has to save when it is asked to."""


async def _body(request: Request, **fields: type | tuple[type, ...]) -> Mapping[str, Any]:
    """The request's JSON object. Fields other than *fields* are rejected."""
    data = b""
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > _LARGEST:
                raise InvalidInput("the request is too large")
        body = json.loads(data or b"{}")
    except ClientDisconnect:
        raise InvalidInput("the client hung up before it had sent its request") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the request is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidInput("the request is not a JSON object")
    for name, value in body.items():
        if name not in fields or not isinstance(value, fields[name]):
            raise InvalidInput(f"{name!r} is not known here, or of the wrong type", hint=", ".join(fields))
    return body


async def _relabel(request: Request) -> Response:
    """Rename, tag, pin or note; one at a time, so that each is one operation."""
    site = site_of(request)
    asked = await _body(request, title=str, add_tags=list, remove_tags=list, pinned=bool, note=str)
    row = await site.row(request.path_params["id"])
    session_id = row.session_id
    if row.live and not row.seq:  # a label needs a snapshot, and there is none yet
        await ask_everyone(site.store, within=_PATIENCE, only=[session_id])
    if not asked:
        raise InvalidInput("nothing to change", hint="title, add_tags, remove_tags, pinned or note")
    done: Label | None = None
    if "title" in asked:
        done = await rename(site.work, site.store, session_id, asked["title"])
    if "add_tags" in asked or "remove_tags" in asked:
        change = TagChange(_texts(asked, "add_tags"), _texts(asked, "remove_tags"))
        done = await tag(site.work, site.store, session_id, change)
    if "pinned" in asked:
        done = await pin(site.work, site.store, session_id, pinned=asked["pinned"])
    if "note" in asked:
        done = await annotate(site.work, site.store, session_id, asked["note"])
    assert done is not None  # noqa: S101 — one of them was asked for
    return answer(done)


def _texts(asked: Mapping[str, Any], name: str) -> list[str]:
    found = asked.get(name, [])
    if not all(isinstance(each, str) for each in found):
        raise InvalidInput(f"{name} is a list of texts")
    return list(found)


async def _fork(request: Request) -> Response:
    site = site_of(request)
    asked = await _body(request, messages=int, at=int, title=str)
    target = await site.target(request.path_params["id"])
    at = asked.get("at", target.seq)
    session = as_reference(target.session_id)
    ref = session if at is None else f"{session}@{at}"
    done = await fork(site.work, site.store, ref, messages=asked.get("messages"), title=asked.get("title") or None)
    return answer(done)


async def _snapshot(request: Request) -> Response:
    """Ask the process that owns the session to save it now."""
    site = site_of(request)
    await _body(request)
    session_id = (await site.row(request.path_params["id"])).session_id
    saved = await ask_everyone(site.store, within=_PATIENCE, only=[session_id])
    if not saved:
        raise InvalidInput(
            f"no process has session {session_id}", session_id=session_id, hint="it is saved already"
        )
    return json_answer({"schema_version": 1, "kind": "saved", **saved[0].raw()})


async def _delete(request: Request) -> Response:
    site = site_of(request)
    await _body(request)
    return answer(await _forgotten(site, [(await site.target(request.path_params["id"])).session_id]))


async def _forget(request: Request) -> Response:
    """Move sessions to the trash; with ``dry_run``, only say which would go."""
    site = site_of(request)
    asked = await _body(request, sessions=list, dry_run=bool)
    return answer(await _forgotten(site, _texts(asked, "sessions"), dry_run=asked.get("dry_run", False)))


async def _forgotten(site: Site, session_ids: list[str], *, dry_run: bool = False) -> Any:
    metas = await site.store.list()
    job = ForgetJob(site.work, site.store, metas, single=len(session_ids) == 1)
    await job.plan_named([exactly(session_id, metas) for session_id in session_ids])
    return job.plan() if dry_run else await job.carry_out()


async def _undo(request: Request) -> Response:
    site = site_of(request)
    await _body(request)
    return answer(await undo(site.work, site.store, request.path_params["id"]))


ROUTES = [
    Route("/api/v1/sessions/{id}", _relabel, methods=["PATCH"]),
    Route("/api/v1/sessions/{id}", _delete, methods=["DELETE"]),
    Route("/api/v1/sessions/{id}/fork", _fork, methods=["POST"]),
    Route("/api/v1/sessions/{id}/snapshot", _snapshot, methods=["POST"]),
    Route("/api/v1/forget", _forget, methods=["POST"]),
    Route("/api/v1/operations/{id}/undo", _undo, methods=["POST"]),
    Route("/api/v1/trash/{id}/restore", _undo, methods=["POST"]),
]
