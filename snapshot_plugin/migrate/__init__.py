"""Migrate raw documents of any released version to the current version, step by step.

`documents` has the chain and `load_document`; `v1` the step from version 1 to 2; `fields` reads raw JSON for the
steps and for the importers.
"""

from snapshot_plugin.migrate.documents import (
    CHAIN,
    Chain,
    MigrationStep,
    StepInfo,
    load_document,
    migrate,
    plan_migration,
)

__all__ = ["CHAIN", "Chain", "MigrationStep", "StepInfo", "load_document", "migrate", "plan_migration"]
