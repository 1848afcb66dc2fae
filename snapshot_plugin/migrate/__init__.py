"""Migrate raw documents of any released version to the current version, step by step.

===========  ==================================================================
`documents`  `load_document`, `migrate`, `plan_migration`
`chain`      the steps in one unbroken order; `steps`: one module for each step
`shapes`     which version a document has
`fields`     reading raw JSON: errors name the path, unknown fields are kept
===========  ==================================================================

Promises: documents of every release load; newer documents are refused, never read in part; a released step never
changes; the input is not modified.
"""

from snapshot_plugin.migrate.chain import Chain, MigrationStep, StepInfo
from snapshot_plugin.migrate.documents import CHAIN, load_document, migrate, plan_migration

__all__ = ["CHAIN", "Chain", "MigrationStep", "StepInfo", "load_document", "migrate", "plan_migration"]
