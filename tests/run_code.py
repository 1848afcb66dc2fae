"""``python -m tests.run_code CODE ARGUMENTS...`` is ``python -c``, and can be forked (`tests.forkserver`)."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    exec(compile(sys.argv.pop(1), "<code>", "exec"), {"__name__": "__main__"})
