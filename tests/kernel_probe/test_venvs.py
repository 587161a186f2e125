"""The environment of each release of onnxruntime: its packages, and that an incomplete one is detected."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from graphcore.conformance import packages
from graphcore.errors import RunError
from tools.kernel_probe import venvs

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
LOCKED = """\
# a comment with == in it
ml-dtypes==0.6.0
    # via onnx
mypy==2.4.1
numpy==2.4.6 ; python_full_version < '3.12'
numpy==2.5.5 ; python_full_version >= '3.12'
onnxruntime==1.32.0
onnxruntime-extensions==0.15.2
ruff==0.17.6
"""


class Installer:
    """Stands in for uv and pip: makes what they would, and fails at what it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pythons: Sequence[str], uv: str | None = "/bin/uv") -> None:
        self.commands: list[list[str]] = []
        self.fails: dict[str, str] = {}
        monkeypatch.setattr(venvs, "PYTHONS", ("3.11", "3.12"))
        monkeypatch.setattr(packages, "uv", lambda: uv)
        monkeypatch.setattr(venvs, "_installed", lambda python: f"python{python}" if python in pythons else None)
        monkeypatch.setattr(packages, "failure_of", self.run)

    def run(self, command: Sequence[str]) -> str:
        self.commands.append([*command])
        if "venv" in command:
            python = Path(command[-1], "bin", "python")
            python.parent.mkdir(parents=True)
            python.touch()
        return next((why for part, why in self.fails.items() if "install" in command and part in command[-1]), "")


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lock = tmp_path / "requirements.lock"
    lock.write_text(LOCKED)
    monkeypatch.setattr(venvs, "LOCK", lock)
    monkeypatch.setenv("GRAPHCORE_RELEASES", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_requirements_are_the_lock_with_another_onnxruntime(releases: Path) -> None:
    assert venvs.requirements("1.27.0").splitlines() == [
        "onnxruntime==1.27.0",
        "ml-dtypes==0.6.0",
        "numpy==2.4.6 ; python_full_version < '3.12'",
        "numpy==2.5.5 ; python_full_version >= '3.12'",
        "onnxruntime-extensions==0.15.2",
    ]


@pytest.mark.parametrize(
    ("uv", "makes", "installs"),
    [
        ("/bin/uv", ["/bin/uv", "venv", "--quiet"], ["/bin/uv", "pip", "install"]),
        (None, ["python3.11", "-m", "venv"], ["{python}", "-m", "pip"]),
    ],
)
def test_environment_is_made_once(
    releases: Path, monkeypatch: pytest.MonkeyPatch, uv: str | None, makes: list[str], installs: list[str]
) -> None:
    installer = Installer(monkeypatch, ["3.11"], uv)
    python = venvs.python_of("1.27.0")
    assert python == releases / "1.27.0-py3.11" / "bin" / "python"
    result, installed = installer.commands
    assert result[:3] == makes
    assert installed[:3] == [part.format(python=python) for part in installs]
    assert venvs.python_of("1.27.0") == python
    assert len(installer.commands) == 2


def test_environment_is_made_anew_when_the_making_was_cut_off(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installer = Installer(monkeypatch, ["3.11"])
    python = venvs.python_of("1.27.0")
    (place := python.parents[1]).joinpath("requirements.txt").rename(place / "requirements.txt.new")
    releases = python.parent / "left"
    releases.touch()
    assert venvs.python_of("1.27.0") == python
    assert len(installer.commands) == 4
    assert not releases.exists()


def test_environment_is_made_anew_when_the_lock_has_changed(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installer = Installer(monkeypatch, ["3.11"])
    venvs.python_of("1.27.0")
    venvs.LOCK.write_text(LOCKED.replace("0.6.0", "0.7.0"))
    venvs.python_of("1.27.0")
    assert len(installer.commands) == 4
    assert "ml-dtypes==0.7.0" in (releases / "1.27.0-py3.11" / "requirements.txt").read_text()


def test_environment_is_made_anew_when_its_python_is_gone(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installer = Installer(monkeypatch, ["3.11"])
    venvs.python_of("1.27.0").unlink()
    assert venvs.python_of("1.27.0").exists()
    assert len(installer.commands) == 4


def test_next_python_is_taken_when_a_release_has_no_wheels_for_the_first(
    releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Installer(monkeypatch, ["3.11", "3.12"]).fails["py3.11"] = "no wheels"
    assert venvs.python_of("1.40.0") == releases / "1.40.0-py3.12" / "bin" / "python"
    assert not (releases / "1.40.0-py3.11").exists()


def test_release_is_named_when_no_python_has_it(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Installer(monkeypatch, ["3.11"]).fails["1.20.1"] = "no version of onnxruntime==1.20.1"
    with pytest.raises(RunError) as refused:
        venvs.python_of("1.20.1")
    assert "\n".join(str(refused.value).splitlines()[:4]) == (
        "measure: no environment with onnxruntime 1.20.1 can be made\n"
        "    Python 3.11  no version of onnxruntime==1.20.1\n"
        "    Python 3.12  is not installed\n"
        "  help: install one of these Pythons that the release has wheels for, or see whether the package index answers"
    )
    assert not list(releases.glob("1.20.1-*"))


@pytest.mark.parametrize("version", ["newest", "../1.27.0", "", "1.27.0 --pre"])
def test_release_that_is_none_is_refused(releases: Path, version: str) -> None:
    with pytest.raises(RunError, match="is not a release of onnxruntime"):
        venvs.python_of(version)
    assert not releases.exists()


def test_checkout_is_asked_for_when_there_is_no_lock(releases: Path) -> None:
    venvs.LOCK.unlink()
    with pytest.raises(RunError, match=r"no requirements\.lock(.|\n)*checkout"):
        venvs.python_of("1.27.0")


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"GRAPHCORE_RELEASES": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b"),
        ({"GRAPHCORE_RELEASES": "", "XDG_CACHE_HOME": "/c"}, "/c/graphcore/releases"),
        ({"GRAPHCORE_RELEASES": "", "XDG_CACHE_HOME": "", "HOME": "/d"}, "/d/.cache/graphcore/releases"),
    ],
)
def test_environments_are_in_the_cache_of_the_user(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert venvs.folder() == Path(folder)


def test_pythons_are_known_by_their_version() -> None:
    result = venvs._installed(HERE)
    assert result is not None
    assert not packages.failure_of([result, "-c", f"import sys; assert {sys.version_info[:2]} == sys.version_info[:2]"])
    assert venvs._installed("2.1") is None


def test_failure_of_a_command_is_one_line() -> None:
    assert packages.failure_of([sys.executable, "-c", ""]) == ""
    assert packages.failure_of([sys.executable, "-c", "import sys; sys.exit('two\\n  lines')"]) == "two lines"
    assert packages.failure_of([sys.executable, "-c", "import sys; sys.exit(3)"]) == "exit status 3"
    assert "no-such-command" in packages.failure_of(["no-such-command"])


def test_command_prints_the_interpreter_or_the_error(
    releases: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Installer(monkeypatch, ["3.11"]).fails["1.20.1"] = "no wheels"
    monkeypatch.setattr(sys, "argv", ["venvs", "1.27.0"])
    assert venvs.main() == 0
    assert capsys.readouterr().out == f"{releases}/1.27.0-py3.11/bin/python\n"
    monkeypatch.setattr(sys, "argv", ["venvs", "1.20.1"])
    assert venvs.main() == 1
    message = capsys.readouterr()
    assert message.out == ""
    assert "error: measure: no environment with onnxruntime 1.20.1 can be made\n" in message.err
