"""Sessions in files: bundles that carry everything, pages for reading, and what other tools write."""
