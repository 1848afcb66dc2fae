"""The project memory and the project's stored sessions as an MCP server. Needs the extra ``mcp``.

`serve` builds the server and runs it on stdio or HTTP, `tools` chooses the project and makes tools from functions.
`memory_tools` use the memory, `session_tools` the snapshot store; both are also resources, for clients that attach
context instead of calling tools.
"""
