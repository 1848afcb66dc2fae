"""Several nodes, one PostgreSQL server, and everything that can die: what was acknowledged, lost, or wrong."""
