"""What came from elsewhere: commands that run only after consent, and names that cannot be taken for others."""

from __future__ import annotations

from tests.requirement_lists.requirement import done, section

__all__ = ["TRUST"]

_COMMANDS = section(
    "docs/explanation/security.md: imported commands",
    done(
        "TRUST-COMMAND",
        "A confirmation covers one imported session and its branches, one program, its words and one directory.",
    ),
    done("TRUST-OWN", "An import changes nothing about the sessions that were recorded here."),
    done("TRUST-MARKED", "What resumes a session is marked wherever it is shown, until it is confirmed."),
)

_NAMES = section(
    "snapshot_plugin/model/ids.py: one rule for ids and names",
    done("TRUST-PART", "No session from elsewhere and no id that is chosen is a hidden part of another one."),
    done("TRUST-REFERENCE", "A reference means the same whatever sessions are called; id: names one exactly."),
)

TRUST = (*_COMMANDS, *_NAMES)
