"""Other distributions that install a package `graphcore` are named, with what to do, before anything fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphcore.runtime.doctor.machine import find_packages
from graphcore.runtime.doctor.release import Notebook
from graphcore.support import installation

ROOT = Path(__file__).parents[2]
OURS = ("__init__.py", "__main__.py", "_version.py", "support/__init__.py", "support/installation.py")
KERNEL = ("__init__.py", "apps.py", "errors.py", "types/__init__.py")
FIX = (
    "pip uninstall -y graphcore-kernel, then install graphcore-engine again with pip install --force-reinstall"
    " --no-deps; or use an environment for each"
)


def install(site: Path, name: str, files: tuple[str, ...], *others: str) -> None:
    """Write the record of a distribution with files of the package and others."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    listed = [*(f"graphcore/{file}" for file in files), *others]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in listed), encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with the first files of graphcore and the record of its distribution."""
    shutil.copytree(ROOT / "graphcore" / "support", tmp_path / "graphcore" / "support")
    for name in OURS[:3]:
        shutil.copy(ROOT / "graphcore" / name, tmp_path / "graphcore" / name)
    install(tmp_path, "graphcore-engine", OURS)
    install(tmp_path, "numpy", (), "numpy/__init__.py")
    return tmp_path


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(site)}
    command = [sys.executable, "-S", *arguments]  # without the graphcore that is installed
    return subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False)


def test_import_warns_of_files_of_another_distribution(site: Path) -> None:
    assert run(site, "-W", "error", "-c", "import graphcore").returncode == 0
    install(site, "graphcore-kernel", KERNEL)
    (site / "graphcore" / "apps.py").touch()
    result = run(site, "-c", "import graphcore")
    text = "RuntimeWarning: graphcore: graphcore-kernel 1.0 also installs graphcore/__init__.py\n"
    assert f"<string>:1: {text}  help: {FIX}" in result.stderr


def test_file_without_a_record_is_named_by_where_it_was_seen(site: Path) -> None:
    (site / "graphcore" / "libgraphcore.so").touch()
    result = run(site, "-c", "import graphcore")
    assert (
        f"{site / 'graphcore'} has files of graphcore-studio 0.2.3\n  help: install graphcore-engine" in result.stderr
    )


def test_command_says_which_distribution_replaced_the_package(site: Path) -> None:
    install(site, "graphcore-kernel", KERNEL, "../bin/graphcore")
    (site / "graphcore" / "__init__.py").write_text("", encoding="utf-8")
    result = run(site, "-m", "graphcore", "doctor")
    assert (result.returncode, result.stdout) == (1, "")
    text = "graphcore-kernel 1.0 also installs graphcore/__init__.py"
    assert result.stderr == f"error: {text}\n  help: {FIX}\n"


def test_command_names_missing_files(site: Path) -> None:
    (site / "graphcore" / "__init__.py").unlink()
    result = run(site, "-m", "graphcore", "doctor")
    text = "error: files of graphcore-engine are missing: graphcore/__init__.py\n  help: install graphcore-engine again"
    assert result.returncode == 1
    assert result.stderr.startswith(text)


def test_doctor_notes_a_conflict(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "FOLDER", str(site / "graphcore"))
    assert installation.conflict() is None
    install(site, "graphcore-distro", (), "../../bin/graphcore", "graphcore_cli/__init__.py")
    book = Notebook()
    find_packages(book)
    (finding,) = book.findings
    assert (finding.level, finding.subject) == ("note", "files")
    assert finding.text == "graphcore-distro 1.0 also installs ../../bin/graphcore"
    assert finding.help == FIX.replace("graphcore-kernel", "graphcore-distro")
