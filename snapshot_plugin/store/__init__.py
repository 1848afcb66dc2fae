"""WHERE: the store contract, and the stores that keep it."""
