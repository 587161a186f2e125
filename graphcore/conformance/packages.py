"""Packages in folders of their own, beside the installed ones: a process uses one by putting it on its path."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from graphcore.errors import RunError


def cache_folder(name: str) -> Path:
    """Return a folder in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphcore" / name


@functools.cache
def uv() -> str | None:
    """Return the command `uv` if it is there and runs: pyenv has a shim for it even where it is not installed."""
    command = shutil.which("uv")
    return command if command and not failure_of([command, "--version"]) else None


def failure_of(command: Sequence[str]) -> str:
    """Run a command; return why it failed, on one line, or ""."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        return str(error)
    if not done.returncode:
        return ""
    return " ".join((done.stderr or done.stdout).split())[-400:] or f"exit status {done.returncode}"


def pip_install(python: str) -> list[str]:
    """Return the command that installs packages for an interpreter: uv's if it is there, else pip's."""
    command = uv()
    return [command, "pip", "install", "--python", python] if command else [python, "-m", "pip", "install"]


def pip_package(package: str, place: Path) -> Path:
    """Return the folder with a package and nothing else; see `installed_in`."""
    command = [*pip_install(sys.executable), "--quiet", "--no-deps", package, "--target"]
    return installed_in(place, package, lambda new: [*command, str(new)])


def installed_in(place: Path, package: str, command: Callable[[Path], Sequence[str]]) -> Path:
    """Return the folder of a package; the first call installs it. Raises `RunError`.

    command: returns the command that installs it into a new folder.
    """
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        new = Path(folder, "new")
        reason = failure_of(command(new))
        if reason or not new.is_dir():
            raise RunError(
                f"conform: {package} cannot be installed: {reason or 'nothing was installed'}",
                help="name a release that has wheels for this Python and system, with the package index in reach",
            )
        new.replace(place)
    return place
