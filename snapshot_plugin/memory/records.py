"""What programs hand to a memory: baselines and noise rules."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import model_validator

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.memory.documents import matching_rule
from snapshot_plugin.model.frozen import FrozenDict
from snapshot_plugin.model.value import JsonObject, Timestamp, Value

__all__ = ["Baseline", "NoiseRule"]


class Baseline(Value):
    """How a feature behaves when it is right. Of what is under ``response`` or ``body`` the shape is stored."""

    _refused_as: ClassVar[type[InvalidInput]] = InvalidInput
    name: str
    data: JsonObject = FrozenDict()
    saved_at: Timestamp | None = None


class NoiseRule(Value):
    """What is not worth looking at: any text that contains `pattern`, in which ``*`` stands for anything."""

    _refused_as: ClassVar[type[InvalidInput]] = InvalidInput
    pattern: str
    auto: bool = False
    reason: str | None = None
    filtered: int = 0

    @model_validator(mode="before")
    @classmethod
    def _plain_text(cls, data: Any) -> Any:
        return {"pattern": data} if isinstance(data, str) else data

    def matches(self, text: str) -> bool:
        """Whether *text* is noise by this rule."""
        return matching_rule({self.pattern: {}}, text) is not None
