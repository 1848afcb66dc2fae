"""``asnap config``: the settings in effect, and where each came from."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.operations.document import Document, Part

__all__ = ["Settings", "command"]


class Setting(Part):
    """One setting: its value and the layer that set it."""

    name: str
    value: Any
    layer: str
    where: str

    @property
    def origin(self) -> str:
        """The layer, and the variable or file in it."""
        return f"{self.layer} {self.where}".rstrip()


class Settings(Document):
    """Every setting, and the settings that were found but not used."""

    kind: ClassVar[str] = "config"
    rows: ClassVar[str] = "settings"
    settings: tuple[Setting, ...]
    notices: tuple[str, ...]
    origin: bool


def show_settings(answer: Settings, out: Output) -> None:
    """Print every setting, and the settings that were found but not used."""
    columns = [Column("SETTING"), Column("VALUE", flexible=True)]
    rows = [[each.name, _shown(each.value)] for each in answer.settings]
    if answer.origin:
        columns.append(Column("FROM", flexible=True))
        rows = [[*row, each.origin] for row, each in zip(rows, answer.settings, strict=True)]
    out.table(columns, rows)


@declare(
    "config",
    answer=Settings,
    show=show_settings,
    examples=(
        ("asnap config show", "every setting in effect here"),
        ("asnap config show --origin", "and whether a flag, a variable, a file or the default set it"),
        ("ASNAP_SNAPSHOT_INTERVAL=30s asnap config show", "try a setting"),
    ),
    exits=(),
)
@click.argument("action", type=click.Choice(["show"]), default="show")
@click.option("--origin", is_flag=True, help="Show where each value came from.")
def command(call: Call, *, action: str, origin: bool) -> Settings:
    """Show the settings in effect here.

    A flag overrides ASNAP_* variables, which override the user's file.
    """
    from dataclasses import fields

    _ = action
    config = call.config
    settings = [
        Setting(
            name=field.name,
            value=_plain(getattr(config, field.name)),
            layer="flag" if call.place and field.name == "storage_path" else config.origin(field.name).layer,
            where=config.origin(field.name).where,
        )
        for field in fields(config)
    ]
    return Settings(settings=tuple(settings), notices=config.notices, origin=origin)


def _plain(value: Any) -> Any:
    return value.raw() if hasattr(value, "raw") else value


def _shown(value: Any) -> str:
    return "" if value is None else str(value)
