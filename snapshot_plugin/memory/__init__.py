"""Project memory: what earlier sessions of a project learned, kept for the next one, and its MCP server.

`ProjectMemory` is the API for programs; `server` offers it to agents. A memory is a directory ``.asnap`` of JSON
files in the project.

- `place`: finds the project's directory. `files`: names, and files opened without following links. `limits`.
- `kinds`: the field names that agents use in errors, endpoints, timings and noise rules. `understand`: the parser;
  `texts`: stack traces, lines of logs, regular expressions.
  `documents`: merges new entries. `shapes`: baselines, and comparing with them. `privacy`: removes secrets.
- `changes`: a `MemoryChange` and its receipt. `view`: the memory with changes applied. `engine`: several
  processes write in turn. `context`: the summary for a new session. `project_memory`: the API.

Guarantees: a save is on disk when it returns; files are replaced atomically; an acknowledged change is never lost.
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
