"""An adapter whose framework is not installed says which extra to install."""

from __future__ import annotations

import sys
from importlib import import_module, metadata

import pytest

from snapshot_plugin import MissingExtra

ADAPTERS = {
    "agent_framework": ("agent-framework", "agent_framework"),
    "claude_agent_sdk": ("claude-agent-sdk", "claude_agent_sdk"),
    "google_adk": ("google-adk", "google"),
    "langgraph": ("langgraph", "langchain_core"),
    "openai_agents": ("openai-agents", "agents"),
    "pydantic_ai": ("pydantic-ai", "pydantic_ai"),
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_adapter_without_its_framework_names_the_extra(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extra, package = ADAPTERS[adapter]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"snapshot_plugin.frameworks.{adapter}", raising=False)
    with pytest.raises(ImportError) as missing:
        import_module(f"snapshot_plugin.frameworks.{adapter}")
    assert isinstance(missing.value, MissingExtra)
    assert missing.value.hint == f"pip install 'snapshot-plugin[{extra}]'"
    assert extra in (metadata.metadata("snapshot-plugin").get_all("Provides-Extra") or ())


def test_adapter_with_another_release_of_its_framework_names_what_it_misses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", type(sys)("claude_agent_sdk"))
    monkeypatch.delitem(sys.modules, "snapshot_plugin.frameworks.claude_agent_sdk", raising=False)
    with pytest.raises(MissingExtra, match="SessionStore") as missing:
        import_module("snapshot_plugin.frameworks.claude_agent_sdk")
    assert missing.value.hint == "pip install --upgrade 'snapshot-plugin[claude-agent-sdk]'"
