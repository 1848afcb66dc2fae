"""``python -m integration.soak.hooked MUTATION ARGUMENTS…``: the command ``asnap`` with a protection taken out."""

from __future__ import annotations

import sys

from integration.soak import mutations
from snapshot_plugin.__main__ import main

if __name__ == "__main__":
    getattr(mutations, sys.argv.pop(1))()
    sys.argv[0] = "asnap"
    main()
