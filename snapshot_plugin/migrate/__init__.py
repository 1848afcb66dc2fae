"""HOW old becomes new: raw data of any released version, one step at a time."""

from snapshot_plugin.migrate.chain import Chain, MigrationStep, StepInfo
from snapshot_plugin.migrate.documents import CHAIN, load_document, migrate, plan_migration

__all__ = ["CHAIN", "Chain", "MigrationStep", "StepInfo", "load_document", "migrate", "plan_migration"]
