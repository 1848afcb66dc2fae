"""Front ends in other languages: sessions over JSON lines (docs/reference/ipc.md)."""
