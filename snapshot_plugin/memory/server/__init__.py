"""The project memory and the snapshot store as an MCP server. Needs the extra ``mcp``."""
