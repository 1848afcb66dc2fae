"""The project memory and the project's stored sessions as an MCP server. Needs the extra ``mcp``.

`server` puts it together, `serve` runs it on stdio or HTTP, `project` knows which project it serves. Tools:
`memory_tools` over the memory, `session_tools` over the snapshot store (`sessions`, `plan`); `resources` offers
both to clients that attach context instead of calling tools.
"""
