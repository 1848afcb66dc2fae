"""The session files of openagent-terminal: ``{"metadata": {"session_id", …}, "messages": [{"role", …}]}``."""

from __future__ import annotations

from snapshot_plugin.migrate.fields import Raw, lifetime, take_list, take_object
from snapshot_plugin.migrate.v1 import read_messages

__all__ = ["openagent_to_v1"]


def openagent_to_v1(document: Raw) -> Raw:
    """Convert an openagent-terminal session to version 1. Other fields are kept under ``metadata.openagent``."""
    about = take_object(document, "metadata")
    session: Raw = {
        "session_id": about.pop("session_id"),
        "provider_type": "openagent-terminal",
        **lifetime(about.pop("created_at", None), about.pop("updated_at", None)),
        "config": {},
        "messages": read_messages(take_list(document, "messages")),
        "metrics": _present(about, "total_tokens"),
        "metadata": _present(about, "title", "tags"),
    }
    document.pop("version", None)
    rest = {**document, "metadata": about} if about else document
    if rest:
        session["metadata"]["openagent"] = rest
    return session


def _present(about: Raw, *names: str) -> Raw:
    found = {name: about.pop(name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None}
