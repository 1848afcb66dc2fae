"""List the licence of every installed distribution that the package depends on; fail for one that is not allowed.

python .ci/licences.py            the table
python .ci/licences.py --sbom     the same as a CycloneDX 1.5 document: the wheel's bill of materials
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

ROOT = "snapshot-plugin"
EXTRAS = {"fast", "acp", "mcp", "keyring", "s3", "otel"}
ALLOWED = re.compile(
    r"apache|bsd|mit\b|isc|psf|python|mpl|mozilla|unlicense|cc0|0bsd|zlib|public domain", re.IGNORECASE
)


def licence_of(found: Distribution) -> str:
    """What the distribution says: its expression, else its classifiers, else the first line of its text."""
    about = found.metadata
    stated = about.get("License-Expression")
    named = [
        line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License ::")
    ]
    text = (about.get("License") or "").strip().splitlines() or _licence_file(found)
    return stated or " and ".join(named) or (text[0].strip() if text else "unknown")


def _licence_file(found: Distribution) -> list[str]:
    """The first lines of the licence that comes with it."""
    files = [file for file in found.files or [] if re.search(r"licen[cs]e", file.name, re.IGNORECASE)]
    return files[0].read_text().strip().splitlines() if files else []


def needed(name: str, extras: frozenset[str] = frozenset()) -> dict[str, Distribution]:
    """The distributions that *name* needs and that are installed, with what those need."""
    found: dict[str, Distribution] = {}
    waiting = [(name, extras)]
    while waiting:
        name, extras = waiting.pop()
        try:
            known = distribution(name)
        except PackageNotFoundError:
            continue
        key = known.metadata["Name"].lower().replace("_", "-")
        if key in found and not extras:
            continue
        found[key] = known
        for line in known.requires or []:
            requirement, _, condition = line.partition(";")
            asked = re.findall(r"extra\s*==\s*['\"]([^'\"]+)", condition)
            if not asked or extras & set(asked):
                match = re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?", requirement)
                if match and match[1].lower() != ROOT:
                    waiting.append(
                        (match[1], frozenset(filter(None, (match[2] or "").replace(" ", "").split(","))))
                    )
    return dict(sorted(found.items()))


def sbom(found: dict[str, Distribution]) -> dict[str, Any]:
    """A CycloneDX document of what is installed beside the package."""

    def component(name: str, known: Distribution) -> dict[str, Any]:
        purl = f"pkg:pypi/{name}@{known.version}"
        licences = [{"license": {"name": licence_of(known)}}]
        return {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": known.version,
            "purl": purl,
            "licenses": licences,
        }

    root = component(ROOT, found[ROOT])
    rest = [component(name, known) for name, known in found.items() if name != ROOT]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": root},
        "components": rest,
        "dependencies": [{"ref": root["bom-ref"], "dependsOn": [each["bom-ref"] for each in rest]}],
    }


def main() -> int:
    """Print the table or the document; 1 if a licence is not allowed."""
    found = needed(ROOT, frozenset(EXTRAS))
    if "--sbom" in sys.argv:
        print(json.dumps(sbom(found), indent=2))
        return 0
    refused = 0
    for name, known in found.items():
        licence = licence_of(known)
        fits = bool(ALLOWED.search(licence))
        refused += not fits
        print(f"{'  ' if fits else '! '}{name:32} {known.version:14} {licence}")
    return 1 if refused else 0


if __name__ == "__main__":
    raise SystemExit(main())
