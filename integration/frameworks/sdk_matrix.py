"""Our tests against the releases of the SDK: ``python -m integration.frameworks.sdk_matrix [release …]``.

Each release gets a throw-away environment of its own, with its HTTP extra, so that the tests of the remote
transports run as well. Without arguments: the oldest release that is supported, the newest, and the newest
pre-release, as the index has them today.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

__all__ = ["releases_to_try", "tried"]

ROOT = Path(__file__).parents[2]
PACKAGE = "agent-client-protocol"
BESIDE = ("uvicorn", "httpx[http2]<1")  # 0.12 asks for httpx without saying that a rewrite of it will not do
TESTS = ("tests/acp_sdk",)


def releases_to_try() -> list[str]:
    """The oldest supported release, the newest one, and the newest of all."""
    index = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "--pre", PACKAGE],
        capture_output=True,
        text=True,
        check=True,
    )
    listed = re.search(r"Available versions: (.+)", index.stdout)
    assert listed, index.stdout
    newest_first = listed[1].split(", ")
    final = [release for release in newest_first if _is_final(release)]
    supported = [release for release in final if _numbers(release) >= _numbers(_oldest_allowed())]
    return list(dict.fromkeys([supported[-1], supported[0], newest_first[0]]))


def _oldest_allowed() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (requirement,) = project["optional-dependencies"]["acp"]
    return str(requirement.partition(">=")[2].partition(",")[0])


def _is_final(release: str) -> bool:
    return re.fullmatch(r"[\d.]+", release) is not None


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def tried(release: str, place: Path) -> bool:
    """Whether our tests pass with *release*, in an environment made for it in *place*."""
    venv.create(place, with_pip=True)
    python = str(place / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", f"{PACKAGE}[http]=={release}", *BESIDE, *_for_tests()]
    subprocess.run(install, check=True)
    command = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-rs", *TESTS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


def _for_tests() -> list[str]:
    """What the package and its tests need beside the SDK."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    tools = ("pytest", "hypothesis", "jsonschema", "trio", "blockbuster")
    tests = [each for each in project["optional-dependencies"]["test"] if each.startswith(tools)]
    return [*project["dependencies"], *tests]


def main() -> int:
    passed: dict[str, bool] = {}
    for release in sys.argv[1:] or releases_to_try():
        print(f"== {PACKAGE} {release}", flush=True)
        with tempfile.TemporaryDirectory(prefix="sdk-") as place:
            passed[release] = tried(release, Path(place))
    for release, ok in passed.items():
        aside = "" if _is_final(release) else " (a pre-release: for information)"
        print(f"{PACKAGE} {release}: {'passed' if ok else 'FAILED'}{aside}")
    return 0 if all(ok for release, ok in passed.items() if _is_final(release)) else 1


if __name__ == "__main__":
    sys.exit(main())
