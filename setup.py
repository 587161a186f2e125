"""Build the package `graphcore` of the folders of `PACKAGES`; all else about it is in pyproject.toml.

`python setup.py links` makes the links that type checkers need in a checkout; `pip install -e .` makes them too.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from setuptools import Command, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
_BESIDE = runpy.run_path(str(ROOT / "graphcore" / "_version.py"))["PACKAGES"]
PACKAGES = {"graphcore": "graphcore"} | {f"graphcore.{name}": name for name in _BESIDE}
"""Packages by name, with their folders, which stand side by side in the repository."""


def packages() -> list[str]:
    """Return the packages and all in them; a folder without modules ends the build."""
    for name, folder in PACKAGES.items():
        if not (ROOT / folder / "__init__.py").is_file():
            sys.exit(f"error: no module of {name} in {ROOT / folder}\nhelp: build from a whole checkout or sdist")
    found = {f"{name}.{inner}" for name, folder in PACKAGES.items() for inner in find_packages(str(ROOT / folder))}
    return sorted(PACKAGES.keys() | found)


def link(path: Path, folder: Path) -> None:
    """Make a path a link to a folder: a symbolic link or, on Windows without the right to make one, a junction."""
    if path.resolve() == folder:
        return
    if path.is_symlink() or path.is_file():  # of a tree that was moved, or of a checkout without links
        path.unlink()
    try:
        path.symlink_to(os.path.relpath(folder, path.parent), target_is_directory=True)
    except (OSError, NotImplementedError) as error:
        try:
            import _winapi

            _winapi.CreateJunction(str(folder), str(path))
        except (ImportError, AttributeError, OSError):
            sys.exit(
                f"error: {path} cannot be made a link to {folder}: {error}\n"
                f"help: install without -e, or put {ROOT} on PYTHONPATH instead of installing"
            )


def link_packages() -> None:
    """Make `src/graphcore`, which alone an editable install puts on the path, and the packages inside of it."""
    for name, folder in PACKAGES.items():
        link(ROOT / "src" / name if name == folder else ROOT / name.replace(".", "/"), ROOT / folder)


def readme() -> str:
    """Return the README for the package index: links are absolute or, if no repository is known, their text alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project.get("urls", {}).get("Repository")

    def absolute(match: re.Match[str]) -> str:
        mark, text, path = match.groups()
        if repository:
            return f"{mark}[{text}]({repository}/{'raw' if mark else 'blob'}/HEAD/{path})"
        return "" if mark else text

    content = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)]*)\)", absolute, content)


def commit_time() -> str:
    """Return the time of the last commit; without one (in an sdist, a ZIP) the first that ZIP can store."""
    try:
        command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        log = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        log = ""
    return log.strip() if (ROOT / ".git").exists() and log.strip() else "315532800"


class Links(Command):
    """Make the links of a checkout."""

    user_options: list[tuple[str, str | None, str]] = []  # noqa: RUF012

    def initialize_options(self) -> None: ...

    def finalize_options(self) -> None: ...

    def run(self) -> None:
        link_packages()


class EditableWheel(editable_wheel):
    """A static .pth of src/, which type checkers read; for other layouts setuptools makes an import hook."""

    def finalize_options(self) -> None:
        link_packages()
        self.distribution.package_dir = {"": "src"}
        super().finalize_options()


class Wheel(bdist_wheel):
    """The same bytes from the same commit: dated by it, without files of earlier builds, modes or a umask."""

    def run(self) -> None:
        shutil.rmtree(self.get_finalized_command("build").build_lib, ignore_errors=True)
        super().run()

    def write_wheelfile(self, wheelfile_base: str, *args: Any, **options: Any) -> None:
        super().write_wheelfile(wheelfile_base, *args, **options)
        for path in Path(wheelfile_base).parent.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


(ROOT / "src").mkdir(exist_ok=True)  # for the egg-info
os.environ.setdefault("SOURCE_DATE_EPOCH", commit_time())
setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    packages=packages(),
    package_dir={"": "src"} | PACKAGES,
    cmdclass={"links": Links, "editable_wheel": EditableWheel, "bdist_wheel": Wheel},
)
