"""Project memory: what earlier sessions of a project learned, kept for the next one, and its MCP server.

`ProjectMemory` is the whole of it for programs; `server` offers it to agents. A memory is a directory ``.asnap`` of
JSON files in the project.

- `place`: which directory is the project. `files`: the files, opened without following links. `names`, `limits`.
- `understand` and `vocabulary`: the shapes in which agents write errors, endpoints, timings and noise rules.
  `documents`: adding to what is known. `shapes`: baselines hold shapes, and are compared by them. `privacy`:
  secrets are taken out.
- `batch`: a `Change`, and applying it. `engine`: reading and writing as one process. `lock` and `sharing`: one
  process writes, and takes the changes of the others. `context`: what a new session is told.
- `learn`: failed tool calls of an agent become errors in the history.

Promises: a save is on disk when it returns; files are replaced whole; a change that was acknowledged is never lost.
"""

from __future__ import annotations

from snapshot_plugin.memory.batch import Saved
from snapshot_plugin.memory.context import MemoryStats, SessionContext
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.memory import ProjectMemory
from snapshot_plugin.memory.place import Place, find_project, literal_project
from snapshot_plugin.memory.records import Baseline, NoiseRule
from snapshot_plugin.memory.shapes import Difference, shape_of

__all__ = [
    "Baseline",
    "Difference",
    "Limits",
    "MemoryStats",
    "NoiseRule",
    "Place",
    "ProjectMemory",
    "Saved",
    "SessionContext",
    "find_project",
    "literal_project",
    "shape_of",
]
