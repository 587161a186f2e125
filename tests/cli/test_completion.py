"""`graphcore completion`: scripts that complete the command."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Call

needs_shtab = pytest.mark.skipif(importlib.util.find_spec("shtab") is None, reason="the package shtab is not installed")


@needs_shtab
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_commands_and_options(call: Call, shell: str) -> None:
    status, out, err = call("completion", shell)
    assert (status, err) == (0, "")
    for word in ("inspect", "set-dims", "quantize", "external-root", "seconds"):
        assert word in out


@needs_shtab
def test_bash_completes_commands_options_choices_and_files(call: Call, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    Path("complete.bash").write_text(call("completion", "bash")[1])
    Path("model.onnx").touch()

    def completed(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in ("graphcore", *words))
        script = (
            "source complete.bash; function=$(complete -p graphcore | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
            f'COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; $function; printf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("ins") == ["inspect"]
    assert "--dim" in completed("run", "--")
    assert completed("convert", "m.onnx", "o.onnx", "--target", "c") == ["cpu", "cuda"]
    assert completed("inspect", "mod") == ["model.onnx"]


def test_completion_names_the_extra_when_the_package_is_missing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    status, out, err = call("completion", "bash")
    assert (status, out) == (1, "")
    assert err.startswith("MissingExtraError: completion: the package shtab is not installed")
    assert "graphcore-engine[cli]" in err
