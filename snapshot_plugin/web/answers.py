"""Answers of the API: the JSON of ``--json``, errors included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.inert import readable_json
from snapshot_plugin.operations import failures
from snapshot_plugin.operations.document import Document

__all__ = ["answer", "failure", "json_answer", "refusal"]

_STATUS = {
    "invalid_input": 400,
    "invalid_session_id": 400,
    "invalid_snapshot": 400,
    "invalid_policy": 400,
    "not_found": 404,
    "snapshot_not_found": 404,
    "store_not_found": 404,
    "conflict": 409,
    "locked": 409,
    "fenced": 409,
    "key_missing": 423,
    "wrong_key": 423,
    "key_problem": 423,
    "damaged": 422,
    "corrupted": 422,
    "tampered": 422,
    "version_unsupported": 422,
    "limit_exceeded": 413,
    "store_unavailable": 503,
    "store_forbidden": 503,
}


def answer(document: Document) -> Response:
    """An operation's answer."""
    return json_answer(document.document())


def json_answer(value: Mapping[str, Any], status: int = 200) -> Response:
    """JSON with invisible and bidirectional characters escaped. The browser does not cache it."""
    headers = {"cache-control": "no-store"}
    return Response(readable_json(value, indent=None), status, headers, media_type="application/json")


def failure(error: SnapshotError, place: str | None) -> Response:
    """An error: what went wrong, and what to do next."""
    return json_answer(failures.describe(error, place=place), _STATUS.get(error.code, 500))


def refusal(status: int, code: str, message: str) -> Response:
    """The guard's answer to a refused request."""
    return json_answer(failures.refusal(code, message, "asnap ui"), status)
