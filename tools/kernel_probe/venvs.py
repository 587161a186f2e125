"""A virtual environment for each release of onnxruntime, kept between runs outside of the tree.

`python -m tools.kernel_probe.venvs 1.27.0` prints the interpreter of that release's environment and
makes the environment on first use. graphcore is not installed there: run with the repository as working directory or on
PYTHONPATH. For Linux and macOS.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphcore.conformance import packages
from graphcore.errors import GraphcoreError, RunError

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""The Pythons that are tried, in this order: the first has wheels of the most releases."""

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"

_LEFT_OUT = {"onnxruntime", "mypy", "ruff"}
"""The package that is to differ, and those that no test runs."""

_REQUIREMENTS = "requirements.txt"
"""The file in an environment that is written last: where it is missing, making the environment was not finished."""


def python_of(version: str) -> Path:
    """Return the interpreter of the environment with this release of onnxruntime; the first call makes it.

    Beside onnxruntime it has the packages of `requirements.lock`. Where those have changed, it is made anew. Raises
    `RunError` where the release is not to be had for any Python that is installed here.
    """
    if not re.fullmatch(r"\d+(\.\w+)+", version):
        raise RunError(f"measure: {version!r} is not a release of onnxruntime", help="name one such as 1.27.0")
    wanted = requirements(version)
    places = {python: folder() / f"{version}-py{python}" for python in PYTHONS}
    with _alone(version):
        for place in places.values():
            if _is_whole(place, wanted):
                return _interpreter(place)
        failures = {}
        for python, place in places.items():
            failure = _make(place, python, wanted)
            if not failure:
                return _interpreter(place)
            failures[f"Python {python}"] = failure
    raise RunError(
        f"measure: no environment with onnxruntime {version} can be made",
        operands=failures,
        help="install one of these Pythons that the release has wheels for, or see whether the package index answers",
    )


def package_of(version: str, package: str = "onnxruntime-gpu") -> Path:
    """Return a folder that has the package of a release and nothing else, for PYTHONPATH; the first call downloads it.

    Raises `RunError` where the package index does not give it.
    """
    place = folder() / f"{package}-{version}-py{sys.version_info.major}.{sys.version_info.minor}"
    with _alone(version):
        return packages.pip_package(f"{package}=={version}", place)


def folder() -> Path:
    """Return the folder of all environments: GRAPHCORE_RELEASES, or graphcore/releases in the user's cache."""
    if chosen := os.environ.get("GRAPHCORE_RELEASES"):
        return Path(chosen).expanduser().absolute()
    return packages.cache_folder("releases")


def requirements(version: str) -> str:
    """Return the packages installed beside a release of onnxruntime, and the release itself, in the format of pip."""
    if not LOCK.is_file():
        raise RunError(f"measure: there is no {LOCK.name}", help="run from a checkout of the repository")
    lines = [line for line in LOCK.read_text(encoding="utf-8").splitlines() if "==" in line.partition("#")[0]]
    return "\n".join([f"onnxruntime=={version}", *(x for x in lines if x.partition("==")[0] not in _LEFT_OUT), ""])


def _make(place: Path, python: str, wanted: str) -> str:
    """Make an environment; return why it could not be made, or an empty text."""
    base = _installed(python)
    if base is None:
        return "is not installed"
    print(f"making {place}", file=sys.stderr)
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    requested, command = place / f"{_REQUIREMENTS}.new", packages.uv()
    make = [command, "venv", "--quiet", "--python", base] if command else [base, "-m", "venv"]
    failure = packages.failure_of([*make, str(place)])
    if not failure:
        requested.write_text(wanted, encoding="utf-8")
        pip = packages.pip_install(str(_interpreter(place)))
        failure = packages.failure_of([*pip, "--quiet", "--requirement", str(requested)])
    if failure:
        shutil.rmtree(place, ignore_errors=True)
        return failure
    requested.replace(place / _REQUIREMENTS)
    return ""


def _is_whole(place: Path, wanted: str) -> bool:
    try:
        text = (place / _REQUIREMENTS).read_text(encoding="utf-8")
    except OSError:
        return False
    return text == wanted and _interpreter(place).exists()


def _interpreter(place: Path) -> Path:
    return place / "bin" / "python"


@contextmanager
def _alone(version: str) -> Iterator[None]:
    """Wait for other processes that make the environments of this release."""
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / f"{version}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _installed(python: str) -> str | None:
    """Return the command of an installed Python, such as "3.11"."""
    text = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{python}')"
    commands = (f"python{python}", sys.executable, "python3")
    return next((command for command in commands if not packages.failure_of([command, "-c", text])), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernel_probe.venvs", description=__doc__)
    parser.add_argument("version", help="a release of onnxruntime, such as 1.27.0")
    try:
        print(python_of(parser.parse_args().version))
    except GraphcoreError as error:
        text, _, _ = str(error).partition("\n  at ")
        print(f"error: {text}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
