"""Agent sessions that do not die."""
