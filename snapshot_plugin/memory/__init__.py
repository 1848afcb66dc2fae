"""Project memory: what earlier sessions of a project learned, kept for the next one, and its MCP server.

`ProjectMemory` is the whole of it for programs; `server` offers it to agents. A memory is a directory ``.asnap`` of
JSON files in the project.

- `place`: which directory is the project. `files`: names, and files opened without following links. `limits`.
  `state`: what all projects of a user share.
- `kinds`: what agents call the fields of errors, endpoints, timings and noise rules. `understand`: reads them.
  `documents`: adds to what is known. `shapes`: baselines, and comparing with them. `privacy`: takes secrets out.
- `changes`: a `MemoryChange`, and a view of the memory with changes applied. `engine`: one process writes, and
  takes the changes of the others. `context`: what a new session is told. `project_memory`: the API.
- `learn`: failed tool calls of an agent become errors in the history.

Promises: a save is on disk when it returns; files are replaced whole; a change that was acknowledged is never lost.
"""

from __future__ import annotations

from snapshot_plugin.memory.changes import Saved
from snapshot_plugin.memory.context import MemoryStats, SessionContext
from snapshot_plugin.memory.documents import NoiseRule
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.place import ProjectPlace, find_project, literal_project
from snapshot_plugin.memory.project_memory import ProjectMemory
from snapshot_plugin.memory.shapes import Baseline, Difference, shape_of

__all__ = [
    "Baseline", "Difference", "MemoryLimits", "MemoryStats", "NoiseRule", "ProjectMemory", "ProjectPlace", "Saved",
    "SessionContext", "find_project", "literal_project", "shape_of",
]  # fmt: skip
