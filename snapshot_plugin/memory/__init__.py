"""What a project's earlier sessions learned, kept for the next one: `ProjectMemory` and the records it holds."""

from __future__ import annotations

from snapshot_plugin.memory.archive import Saved
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.memory import ProjectMemory
from snapshot_plugin.memory.records import (
    ApiSchema,
    Baseline,
    Endpoint,
    EndpointTiming,
    ErrorHistory,
    ErrorRecord,
    NoiseConfig,
    NoiseRule,
    Timings,
)
from snapshot_plugin.memory.shapes import shape_of
from snapshot_plugin.memory.summary import MemoryStats, SessionContext

__all__ = [
    "ApiSchema",
    "Baseline",
    "Endpoint",
    "EndpointTiming",
    "ErrorHistory",
    "ErrorRecord",
    "Limits",
    "MemoryStats",
    "NoiseConfig",
    "NoiseRule",
    "ProjectMemory",
    "Saved",
    "SessionContext",
    "Timings",
    "shape_of",
]
