from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Asnap


def test_every_path_follows_the_xdg_variables(asnap: Asnap, home: Path) -> None:
    places = {each["name"]: each["path"] for each in asnap("paths", "--json").json["places"]}

    assert places == {
        "store": str(home / "data" / "asnap" / "store"),
        "config": str(home / "config" / "asnap" / "config.toml"),
        "cache": str(home / "cache" / "asnap"),
        "state": str(home / "state" / "asnap"),
    }


def test_store_path_can_be_overridden(asnap: Asnap, tmp_path: Path) -> None:
    assert asnap("paths", "--store", tmp_path / "here").out.splitlines()[0].split("\t")[1] == str(tmp_path / "here")


def test_a_store_url_is_shown_unchanged(asnap: Asnap) -> None:
    url = "s3://bucket/prefix"
    assert asnap("paths", "--store", url).out.splitlines()[0].split("\t")[1] == url
