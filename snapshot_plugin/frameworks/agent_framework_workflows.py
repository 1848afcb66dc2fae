"""`SnapshotCheckpointStorage`: workflow checkpoints of Microsoft's agent-framework as sessions of a snapshot store.

A workflow is a session, a checkpoint is a snapshot of it. Nothing is pickled: objects in a checkpoint are
dataclasses, pydantic models or enums, or have ``to_dict`` and ``from_dict``, as the framework's own do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from agent_framework import WorkflowCheckpoint, WorkflowEvent
from agent_framework._workflows import _checkpoint_encoding
from agent_framework.exceptions import WorkflowCheckpointException

from snapshot_plugin.errors import InvalidInput, SnapshotError
from snapshot_plugin.frameworks.checkpoints import Checkpoints
from snapshot_plugin.frameworks.conversations import checked, left_out, reading
from snapshot_plugin.frameworks.python_values import ValueCodec, key_of
from snapshot_plugin.frameworks.sessions import (
    WORKFLOW,
    Key,
    Place,
    labelled,
    new_session,
    open_place,
    session_id_for,
    shared_session,
)
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.hop import in_thread
from snapshot_plugin.store.recent import Recent
from snapshot_plugin.store.sync import SyncStore

__all__ = ["FRAMEWORK", "SnapshotCheckpointStorage"]

FRAMEWORK = "agent-framework-workflow"
FORMAT = 1
_WORKFLOWS = 64
_SECTIONS = f"{FRAMEWORK}:"
_MODULES = ("agent_framework.", "agent_framework_orchestrations.", "openai.types.")
"""Module prefixes that the framework's own storage allows."""


class SnapshotCheckpointStorage:
    """Keeps checkpoints: durable when `save` returns. Takes the place of `FileCheckpointStorage`.

    Args:
        place: a directory, a URL, or an open store.
        key: a passphrase or key source; everything but ids is then encrypted.
        allowed_checkpoint_types: classes of your own in checkpoints, or their names (``module:qualname``); those
            given to the framework's `register_checkpoint_type` are allowed as well.
    """

    def __init__(
        self, place: Place, key: Key = None, *, allowed_checkpoint_types: Iterable[type | str] = ()
    ) -> None:
        allowed = {each if isinstance(each, str) else key_of(each) for each in allowed_checkpoint_types}
        self._work = _Workflows(open_place(place, key), allowed)

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint and return its id.

        Raises:
            WorkflowCheckpointException: it holds something that would not come back. Nothing was stored.
        """
        return await in_thread(self._work.save, checkpoint)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """A checkpoint; `WorkflowCheckpointException` if there is none with this id."""
        return await in_thread(self._work.load, checkpoint_id)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """The checkpoints of a workflow, in the order in which they were saved."""
        return await in_thread(self._work.all, workflow_name)

    async def delete(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint for ever; whether there was one."""
        return await in_thread(self._work.delete, checkpoint_id)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """The checkpoint of a workflow with the latest timestamp; None if there is none."""
        return await in_thread(self._work.latest, workflow_name)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """The ids of a workflow's checkpoints, in the order in which they were saved."""
        return await in_thread(self._work.ids, workflow_name)


class _Workflows:
    """The work of the storage, in a worker thread."""

    def __init__(self, store: SyncStore, allowed: set[str]) -> None:
        registered: set[str] = getattr(_checkpoint_encoding, "_REGISTERED_CHECKPOINT_TYPE_KEYS", set())
        self._codec = ValueCodec(_MODULES, lambda: allowed | registered, {WorkflowEvent: _event})
        self._store = store
        self._known: Recent[Checkpoints] = Recent(_WORKFLOWS)

    def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint."""
        fields = checkpoint.to_dict()
        try:
            stored = {_SECTIONS + name: self._codec.packed(value) for name, value in fields.items()}
        except InvalidInput as error:
            told = f"checkpoint {checkpoint.checkpoint_id} cannot be stored: {error.message}"
            raise WorkflowCheckpointException(f"{told} ({error.hint})" if error.hint else told) from error
        workflow = self._workflow(checkpoint.workflow_name)

        def make(head: SessionSnapshot | None) -> SessionSnapshot:
            base = checked(head, FRAMEWORK) or new_session(workflow.session.session_id, FRAMEWORK)
            kept = {name: value for name, value in base.plugins.items() if not name.startswith(_SECTIONS)}
            plugins = {**kept, FRAMEWORK: {"format": FORMAT, "workflow": checkpoint.workflow_name}, **stored}
            now = max(base.updated_at, workflow.session.now())
            return base.evolve(plugins=plugins, title=base.title or checkpoint.workflow_name, updated_at=now)

        workflow.save(make)
        return str(checkpoint.checkpoint_id)

    def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """One checkpoint."""
        workflow = self._holder(checkpoint_id)
        if workflow is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        return self._loaded(workflow, [checkpoint_id])[0]

    def all(self, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Every checkpoint of a workflow."""
        workflow = self._workflow(workflow_name)
        with workflow.session.lock:
            return self._loaded(workflow, _ids(workflow))

    def ids(self, workflow_name: str) -> list[str]:
        """The ids of a workflow's checkpoints."""
        return _ids(self._workflow(workflow_name))

    def latest(self, workflow_name: str) -> WorkflowCheckpoint | None:
        """The checkpoint with the latest timestamp, read without the state of the others."""
        workflow = self._workflow(workflow_name)
        with workflow.session.lock:
            index = workflow.index()
            newest = max(
                index, key=lambda key: datetime.fromisoformat(index[key].labels["timestamp"]), default=None
            )
            return None if newest is None else self._loaded(workflow, [newest[1]])[0]

    def delete(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint."""
        workflow = self._holder(checkpoint_id)
        if workflow is not None:
            with workflow.session.lock:
                workflow.keep(key for key in workflow.index() if key[1] != checkpoint_id)
        return workflow is not None

    def _workflow(self, name: str) -> Checkpoints:
        return self._checkpoints(session_id_for(name) + WORKFLOW)

    def _checkpoints(self, session_id: str) -> Checkpoints:
        known = self._known.get(session_id) or Checkpoints(
            shared_session(self._store, session_id), lambda snapshot: [_labels(snapshot)]
        )
        self._known.put(session_id, known)
        return known

    def _holder(self, checkpoint_id: str) -> Checkpoints | None:
        """The workflow that has a checkpoint; recently used workflows are searched first."""
        used = self._known.values()
        others = (self._checkpoints(meta.session_id) for meta, _ in labelled(self._store, FRAMEWORK))
        errors: list[SnapshotError] = []
        for each in itertools.chain(used, others):
            with left_out(errors):
                if ("", checkpoint_id) in each.index():
                    return each
        if errors:
            raise errors[0]
        return None

    def _loaded(self, workflow: Checkpoints, ids: list[str]) -> list[WorkflowCheckpoint]:
        return [self._made(snapshot) for snapshot, _ in workflow.load([("", each) for each in ids])]

    def _made(self, snapshot: SessionSnapshot) -> WorkflowCheckpoint:
        checked(snapshot, FRAMEWORK)
        stored = {
            name.removeprefix(_SECTIONS): value
            for name, value in snapshot.plugins.items()
            if name.startswith(_SECTIONS)
        }
        try:
            with reading(snapshot.session_id, FRAMEWORK):
                fields = {name: self._codec.unpacked(each) for name, each in stored.items()}
                return WorkflowCheckpoint.from_dict(fields)
        except InvalidInput as error:
            raise WorkflowCheckpointException(f"{error.message} ({error.hint})") from error


def _ids(workflow: Checkpoints) -> list[str]:
    return [each for _, each in workflow.index()]


def _labels(snapshot: SessionSnapshot) -> dict[str, str]:
    checked(snapshot, FRAMEWORK)
    fields = {"checkpoint": "checkpoint_id", "parent": "previous_checkpoint_id", "timestamp": "timestamp"}
    named = {label: snapshot.plugins.get(_SECTIONS + field) for label, field in fields.items()}
    return {"framework": FRAMEWORK, **{label: each for label, each in named.items() if isinstance(each, str)}}


def _event(event: Any) -> dict[str, Any]:
    """The keyword arguments of an event's constructor."""
    names = ("data", "origin", "state", "details", "executor_id", "iteration")
    hidden = ("request_id", "source_executor_id", "request_type", "response_type")
    given = {name: getattr(event, name) for name in names} | {name: getattr(event, f"_{name}") for name in hidden}
    return {"type": event.type, **{name: each for name, each in given.items() if each is not None}}
