"""The state of registered plugins, saved and restored separately for each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.manager.context import Problem
from snapshot_plugin.model.frozen import freeze, thaw

__all__ = ["PluginStates"]


class _Plugin(NamedTuple):
    get_state: Callable[[], Any]
    set_state: Callable[[Any], None]


class PluginStates:
    """Plugins by name.

    A failing plugin is named and does not affect the others. The state of an unregistered plugin is kept.
    """

    def __init__(self) -> None:
        self._plugins: dict[str, _Plugin] = {}

    def register(self, name: str, get_state: Callable[[], Any], set_state: Callable[[Any], None]) -> None:
        """Keep a plugin's state from now on. The functions are plain: state is handed over, not waited for."""
        if not name or name in self._plugins:
            raise InvalidInput(f"the plugin name {name!r} is empty or taken", hint="register each plugin once")
        for function in (get_state, set_state):
            if inspect.iscoroutinefunction(function):
                raise InvalidInput(f"plugin {name!r} needs two plain functions", hint="async ones do not work here")
        self._plugins[name] = _Plugin(get_state, set_state)

    def read(self, before: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
        """Every plugin's current state; *before* is used for plugins that fail."""
        states, problems = dict(before), []
        for name, plugin in self._plugins.items():
            try:
                states[name] = freeze(plugin.get_state(), name)
            except Exception as error:  # noqa: BLE001 — one plugin's failure is not another's
                problems.append(Problem(f"plugin {name}", f"{type(error).__name__}: {error}"))
        return states, problems

    def write(self, states: Mapping[str, Any], *, only: str | None = None) -> list[Problem]:
        """Give each registered plugin its state back, or only one; those that failed are named."""
        problems = []
        for name, plugin in self._plugins.items():
            if name not in states or only not in (None, name):
                continue
            try:
                plugin.set_state(thaw(states[name]))
            except Exception as error:  # noqa: BLE001 — one plugin's failure is not another's
                problems.append(Problem(f"plugin {name}", f"{type(error).__name__}: {error}"))
        return problems
