"""BYTES: how a snapshot becomes a frame, and a frame becomes a snapshot again."""
