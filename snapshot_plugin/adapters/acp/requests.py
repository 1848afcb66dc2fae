"""Requests that wait for their answers."""

from __future__ import annotations

import json
import threading
from typing import Any, NamedTuple

from snapshot_plugin.acp.messages import Message

__all__ = ["Pending", "Waiter", "key_of"]


class Pending(NamedTuple):
    """A request that one side made of the other, through us."""

    id: Any
    method: str
    session_id: str | None
    params: Message


class Waiter:
    """A request of our own, and the thread that waits for its answer."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: Message = {}


def key_of(request_id: Any) -> str:
    """What tells ids apart: ``1`` and ``"1"`` are two."""
    return json.dumps(request_id)
