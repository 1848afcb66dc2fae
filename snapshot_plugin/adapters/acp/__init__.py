"""The transparent ACP proxy: any client, any agent, and sessions that survive both."""
