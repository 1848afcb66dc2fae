"""WHO: what connects the store to agents, editors and frameworks."""
