"""The reference page names every tool, argument, field and resource there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_plugin.memory import SessionContext
from tests.mcp.servers import connected

PAGE = (Path(__file__).parents[2] / "docs/reference/mcp-tools.md").read_text("utf-8")


@pytest.mark.anyio
async def test_every_tool_and_argument_is_documented(project: Path) -> None:
    async with connected(project) as (client, _):
        for tool in (await client.list_tools()).tools:
            assert [name for name in (tool.name, *tool.input_schema["properties"]) if f"`{name}`" not in PAGE] == []
        templates = [t.uri_template for t in (await client.list_resource_templates()).resource_templates]
        resources = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert [uri for uri in templates + resources if f"`{uri}`" not in PAGE] == []


def test_every_field_of_the_context_is_documented() -> None:
    assert [name for name in SessionContext.model_fields if f"`{name}`" not in PAGE] == []
