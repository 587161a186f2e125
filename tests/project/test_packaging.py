"""The package is whole however it is built and installed from a checkout, which has no symbolic links."""

from __future__ import annotations

import ensurepip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from docs.imports import PACKAGES, modules
from graphcore._version import __version__

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md", ".gitignore")
DATA = (".json", ".mjs", ".pyi", ".typed", ".js", ".css", ".txt")
"""Suffixes of the files beside modules that the package needs."""
COMMITTED = (2023, 11, 14, 22, 13, 20)

pytest.importorskip("setuptools", minversion="77", reason="setuptools builds the package: the dev extra has it")


def run(folder: Path, *command: str, returncode: int = 0, **environment: str) -> str:
    """Run a command in a folder, without the path of these tests; return what it prints."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH", "SOURCE_DATE_EPOCH")}
    process = subprocess.run(
        command, cwd=folder, env=inherited | environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == returncode, process.stdout + process.stderr
    return process.stdout + process.stderr


def copy_sources(tree: Path) -> Path:
    """Copy what a build needs to a folder, without the links of an editable install; return the folder."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {n for n in names if n in ("__pycache__", "node_modules") or Path(folder, n).is_symlink()}

    for part in ("graphcore", *PACKAGES):
        shutil.copytree(ROOT / part, tree / part, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    return tree


def build(tree: Path, kind: str, out: Path, *before: str) -> Path:
    """Build a "wheel", an "sdist" or an "editable" wheel of a tree, after some statements; return the file."""
    code = f"{'; '.join(before)}\nimport setuptools.build_meta as b; print('built', b.build_{kind}({str(out)!r}))"
    return out / run(tree, sys.executable, "-c", code).split("built ")[-1].split()[0]


def make_venv(home: Path) -> Path:
    """Make a venv that has the packages of this one, but for graphcore; return its interpreter."""
    run(home, sys.executable, "-m", "venv", "--without-pip", str(home / "venv"))
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home / "venv")}))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return Path(sysconfig.get_path("scripts", vars={"base": str(home / "venv")})) / "python"


def expected() -> set[str]:
    """Return the files of the package, as a wheel names them."""
    paths = list(modules().values())
    for folder in {path.parent for path in paths} | {ROOT / "graphcore" / "view" / "assets"}:
        paths += [path for path in folder.iterdir() if path.suffix in DATA]
    names = {path.relative_to(ROOT).as_posix() for path in paths}
    return {name if name.startswith("graphcore/") else f"graphcore/{name}" for name in names}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    tree = copy_sources(tmp_path_factory.mktemp("packaging") / "tree")
    run(tree, "git", "init", "--quiet")
    run(tree, "git", "add", ".")
    user = ("-c", "user.name=x", "-c", "user.email=x", "-c", "commit.gpgsign=false")
    run(tree, "git", *user, "commit", "--quiet", "-m", "x", GIT_COMMITTER_DATE="@1700000000 +0000")
    return tree


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, "wheel", tmp_path_factory.mktemp("wheel"), "import os", "os.umask(0o22)")


def test_wheel_has_every_file_dated_by_the_commit(wheel: Path) -> None:
    content = zipfile.ZipFile(wheel)
    assert {name for name in content.namelist() if ".dist-info/" not in name} == expected()
    assert {info.date_time for info in content.infolist()} == {COMMITTED}


def test_wheel_again_is_the_same_bytes(tree: Path, wheel: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tree, copy, symlinks=True)
    for path in [copy / "LICENSE", *copy.glob("graphcore/*/*.json"), *copy.glob("ops/*.py")]:
        path.chmod(0o600)
        os.utime(path, (1, 1))
    stale = copy / "build" / "lib" / "graphcore" / "stale.py"
    stale.parent.mkdir(parents=True, exist_ok=True)
    stale.touch()
    again = build(copy, "wheel", tmp_path, "import os", "os.umask(0o77)")
    assert again.read_bytes() == wheel.read_bytes()


def test_wheel_of_sdist_is_that_of_the_checkout(tree: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(tree, "sdist", tmp_path)) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    infos = zipfile.ZipFile(build(unpacked, "wheel", tmp_path)).infolist()
    expected_infos = zipfile.ZipFile(wheel).infolist()
    assert [(i.filename, i.CRC, i.external_attr) for i in infos] == [
        (i.filename, i.CRC, i.external_attr) for i in expected_infos
    ]
    assert {info.date_time[0] for info in infos} == {1980}  # no commit is known there


def test_versions_agree() -> None:
    assert f'\nversion = "{__version__}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_description_has_no_relative_links(tree: Path, wheel: Path, tmp_path: Path) -> None:
    metadata = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA"))
    description = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "[Install](" not in description
    assert "Get started | Install, tour in five minutes" in description
    copy = shutil.copytree(tree, tmp_path / "copy")
    project = (copy / "pyproject.toml").read_text(encoding="utf-8")
    urls = '[project.urls]\nRepository = "https://example.org/g"\n\n[project.scripts]'
    (copy / "pyproject.toml").write_text(project.replace("[project.scripts]", urls), encoding="utf-8")
    description = run(copy, sys.executable, "setup.py", "--long-description")
    assert "[Install](https://example.org/g/blob/HEAD/docs/start/install.md)" in description
    assert "](https://example.org/g/raw/HEAD/docs/images/view-unet.png)" in description
    assert re.search(r"\]\((?!\w+:)", description) is None


def test_build_fails_without_modules(tmp_path: Path) -> None:
    tree = copy_sources(tmp_path / "tree")
    shutil.rmtree(tree / "ops")
    (tree / "ops").write_text("../ops", encoding="utf-8")
    message = run(tree, sys.executable, "setup.py", "--name", returncode=1)
    assert message.startswith("error: no module of graphcore.ops in ")
    assert "help: build from a whole checkout or sdist" in message


def test_editable_says_what_to_do_without_links(tmp_path: Path) -> None:
    tree = copy_sources(tmp_path / "tree")
    (tree / "graphcore" / "ops").write_text("../ops", encoding="utf-8")  # as git leaves a link that it cannot make
    run(tree, sys.executable, "setup.py", "--quiet", "links")
    for link, folder in [("src/graphcore", "graphcore"), *((f"graphcore/{name}", name) for name in PACKAGES)]:
        assert (tree / link).samefile(tree / folder)
        (tree / link).unlink()
    code = """
import os, runpy, sys
def symlink(*args, **options): raise OSError("no privilege")
os.symlink = symlink
sys.argv = ["setup.py", "links"]
runpy.run_path("setup.py")
"""
    message = run(tree, sys.executable, "-c", code, returncode=1)
    assert f"error: {tree / 'src' / 'graphcore'} cannot be made a link to {tree / 'graphcore'}: no privilege" in message
    assert f"help: install without -e, or put {tree} on PYTHONPATH" in message


@pytest.mark.full
@pytest.mark.parametrize("kind", ["folder", "editable", "wheel", "sdist", "git", "zip"])
def test_pip_installs_all_of_it(kind: str, tree: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    bundled = next((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"), None)
    if bundled is None:
        pytest.skip("ensurepip has no pip here")
    source: tuple[object, ...]
    match kind:
        case "wheel":
            source = (request.getfixturevalue("wheel"),)
        case "sdist":
            source = (build(tree, "sdist", tmp_path),)
        case "git":
            source = (f"git+{tree.as_uri()}",)
        case "zip":
            run(tree, "git", "archive", f"--output={tmp_path / 'tree.zip'}", "--prefix=tree/", "HEAD")
            source = (tmp_path / "tree.zip",)
        case _:
            copy = shutil.copytree(tree, tmp_path / "copy")
            source = ("-e", copy) if kind == "editable" else (copy,)
    python = make_venv(tmp_path)
    options = ("--no-deps", "--no-build-isolation", "--no-index")
    run(tmp_path, sys.executable, f"{bundled / 'pip'}", "--python", str(python), "install", *options, *map(str, source))
    code = "import graphcore.models, graphcore.ops, os; print('in', os.path.dirname(graphcore.__file__))"
    folder = Path(run(tmp_path, str(python), "-c", code).rpartition("in ")[2].strip())
    assert {name for name in expected() if not (folder.parent / name).is_file()} == set()
    assert folder.is_relative_to(tmp_path / "copy" / "src" if kind == "editable" else python.parents[1])
    assert "No module named 'ops'" in run(tmp_path, str(python), "-c", "import ops", returncode=1)
