"""All steps, oldest first. Append new ones; a released step is never edited, moved or removed."""

from __future__ import annotations

from snapshot_plugin.migrate.chain import MigrationStep
from snapshot_plugin.migrate.steps.v1_to_v2 import v1_to_v2

__all__ = ["STEPS"]

STEPS: tuple[MigrationStep, ...] = (
    MigrationStep(
        1, "put tool calls inside the message, and give config and metrics the names of the model", v1_to_v2
    ),
)
