"""Session files of other tools, read into documents that `snapshot_plugin.migrate` takes from there.

A reader knows where things are in a file; what they mean is the migration chain's to say, as for every document.
What a reader has no place for is kept as it came, under ``metadata.<tool>`` or as a block of an unknown kind.
"""
