"""The committed page.js and page.css: built of the sources beside them, and fit to stand in a page."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from graphcore.view.notebook import ASSETS

FRONTEND = ASSETS.parent / "frontend"
SOURCES = sorted(FRONTEND.glob("src/*"))


def digest() -> str:
    """Return the digest that build.mjs puts into the banner."""
    names = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json"]
    files = {name: FRONTEND / name for name in names} | {f"src/{path.name}": path for path in SOURCES}
    result = hashlib.sha256()
    for name in sorted(files):
        result.update(name.encode() + b"\0" + files[name].read_bytes() + b"\0")
    return result.hexdigest()


@pytest.mark.parametrize("name", ["page.js", "page.css"])
def test_bundle_is_of_these_sources(name: str) -> None:
    banner = (ASSETS / name).read_text(encoding="ascii").split("\n", 1)[0]
    assert f"sha256:{digest()}" in banner, "run make page"


def test_bundle_does_not_end_the_element_that_it_stands_in() -> None:
    for name in ("page.js", "page.css"):
        text = (ASSETS / name).read_text(encoding="ascii").lower()
        assert not re.search(r"</(script|style)|<!--", text)


def test_bundle_names_no_other_place() -> None:
    text = (ASSETS / "page.js").read_text(encoding="ascii")
    assert set(re.findall(r"https?://[\w./-]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "url(" not in (ASSETS / "page.css").read_text(encoding="ascii")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_source_makes_no_markup_of_text_and_no_program(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc|Fragment\(",
        text,
    )
    assert text.count("\n") < 400


def test_versions_are_exact() -> None:
    package = json.loads((FRONTEND / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((FRONTEND / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    wanted = package["dependencies"] | package["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values())
    assert {name: lock[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert all(entry.get("integrity") for name, entry in lock.items() if name)


def test_licence_stands_beside_the_bundle_for_each_library_in_it() -> None:
    lock = json.loads((FRONTEND / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    licences = (ASSETS / "LICENCES.txt").read_text(encoding="utf-8")
    bundled = [name for name, entry in lock.items() if name and not entry.get("dev")]
    assert bundled
    for name in bundled:
        library = name.removeprefix("node_modules/")
        assert f"{library} {lock[name]['version']}" in licences
    assert licences.count("Permission is hereby granted") == len(bundled)
