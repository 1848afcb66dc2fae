"""The reference page names every tool, argument, field and resource there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_plugin.memory import MemoryLimits
from tests.mcp.servers import connected, told

PAGE = (Path(__file__).parents[2] / "docs/reference/mcp-tools.md").read_text("utf-8")


@pytest.mark.anyio
async def test_every_tool_and_argument_is_documented(project: Path) -> None:
    async with connected(project) as (client, _):
        for tool in (await client.list_tools()).tools:
            assert [name for name in (tool.name, *tool.input_schema["properties"]) if f"`{name}`" not in PAGE] == []
        templates = [t.uri_template for t in (await client.list_resource_templates()).resource_templates]
        resources = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert [uri for uri in templates + resources if f"`{uri}`" not in PAGE] == []


@pytest.mark.anyio
async def test_every_field_of_the_context_and_of_receipts_is_documented(project: Path) -> None:
    saved = {"action": "save", "namespace": "baselines", "key": "b", "data": {"response": 1}}
    async with connected(project, limits=MemoryLimits(baselines=1, errors=1)) as (client, _):
        await told(client, "session_store", **{**saved, "key": "evicted"})
        answers = [
            await told(client, "session_store", **saved),
            await told(client, "session_store", action="save", namespace="errors", data=["a", "b", 3]),
            await told(client, "session_store", action="save", namespace="errors", key="k", data={"x": 1}),
            await told(client, "compare_baseline", name="b", observed={}),
            await told(client, "session_store", action="load", namespace="errors", start=0),
            await told(client, "session_store", action="list"),
            await told(client, "session_store", action="stats"),
            await told(client, "load_session_context"),
        ]
    fields = {"left_out", *(name for answer in answers for name in answer)}
    assert fields >= {"understood", "ignored", "better", "redacted", "evicted", "trimmed", "bytes", "total"}
    assert [name for name in fields if f"`{name}`" not in PAGE] == []
