"""Old import paths of the ACP adapters."""
