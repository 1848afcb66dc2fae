"""Readers for the session files of other tools. Each returns a document, which `snapshot_plugin.migrate` checks.

One module for each tool; `dumps` recognises files by their shape, `lines` reads JSON lines with bounds.
Promise: a part with no place in a session is kept, under ``metadata.<tool>`` or as a block of an unknown kind.
"""
