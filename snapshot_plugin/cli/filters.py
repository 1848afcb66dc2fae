"""The filters of every command that looks through sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["filter_options"]

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--agent", metavar="NAME", help="Only sessions of agents with this in their name."),
    click.option("--since", metavar="WHEN", help="Only those changed since: 3d, 12h, yesterday, 2026-11-01."),
    click.option("--until", metavar="WHEN", help="Only those last changed before or on it."),
    click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only those with this tag; may be repeated."),
)


def filter_options(body: Any) -> Any:
    """The filters every command that looks through sessions has: --agent, --since, --until, --tag."""
    for option in reversed(_OPTIONS):
        body = option(body)
    return body
