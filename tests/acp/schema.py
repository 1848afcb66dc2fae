"""The protocol's own JSON schema, where it is at hand: beside the repository, or where the environment says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = ["validator_for"]

_PLACE = "ASNAP_ACP_SCHEMA"
_BESIDE = Path(__file__).parents[3] / "shared" / "acp-schema"
_STABLE, _UNSTABLE = "v1.schema.json", "v1.unstable.schema.json"


def validator_for(name: str) -> Callable[[Any], None]:
    """A check that a value is what the schema calls *name*; the test is skipped where there is no schema.

    What the stable schema does not know (``session/fork``) is looked up in the unstable one.
    """
    jsonschema = pytest.importorskip("jsonschema")
    definitions = _definitions(_STABLE)
    if name not in definitions:
        definitions = _definitions(_UNSTABLE)
    validator = jsonschema.Draft202012Validator({"$defs": definitions, "$ref": f"#/$defs/{name}"})
    check: Callable[[Any], None] = validator.validate
    return check


@cache
def _definitions(file: str) -> dict[str, Any]:
    path = Path(os.environ.get(_PLACE, _BESIDE)) / file
    if not path.is_file():
        pytest.skip(f"no ACP schema: set {_PLACE} to the directory of {_STABLE} and {_UNSTABLE}")
    definitions: dict[str, Any] = json.loads(path.read_text())["$defs"]
    return definitions
