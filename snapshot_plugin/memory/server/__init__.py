"""The project memory and the project's stored sessions as an MCP server. Needs the extra ``mcp``.

`serve` puts it together and runs it on stdio or HTTP, `project` knows which project it serves, `tools` makes tools
from functions. `memory_tools` are over the memory, `session_tools` over the snapshot store; both are resources too,
for clients that attach context instead of calling tools.
"""
