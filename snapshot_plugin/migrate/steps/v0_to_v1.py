"""Version 0 to 1: each foreign format has a reader of its own."""

from __future__ import annotations

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.migrate.fields import Raw
from snapshot_plugin.migrate.shapes import shape_of
from snapshot_plugin.migrate.steps.v0_oneringai import oneringai_to_v1
from snapshot_plugin.migrate.steps.v0_openagent import openagent_to_v1

__all__ = ["foreign_to_v1"]

_READERS = {"openagent": openagent_to_v1, "oneringai": oneringai_to_v1}


def foreign_to_v1(document: Raw) -> Raw:
    """A foreign session dump as a version 1 document."""
    shape = shape_of(document)
    if shape is None:
        raise InvalidSnapshot("it has no shape we know")
    return _READERS[shape](document)
