"""`graphcore doctor`: its findings on the installed state and on others, as text and as JSON; it never raises."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

from graphcore.cli import main
from graphcore.cli.commands import doctor as diagnosing
from graphcore.runtime import doctor
from graphcore.runtime.doctor import machine, release, report
from graphcore.runtime.doctor.release import Distribution, Notebook, Provider
from graphcore.runtime.lowering.targets import traps
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.lowering.targets.releases import ReleaseRange, table_of
from graphcore.runtime.ort import release as installed
from tests.support.pretended import Pretend, lacking, listed, pretended

Call = Callable[..., tuple[int, str]]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pretend]:
    yield from pretended(monkeypatch)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command: its status and what it prints."""

    def run(*argv: str) -> tuple[int, str]:
        status = main(["doctor", *argv])
        out, err = capsys.readouterr()
        assert not err
        return status, out

    return run


def texts(result: release.DoctorReport, subject: str) -> list[str]:
    return [f"{one.level}: {one.text} ({one.help})" for one in result.findings if one.subject == subject]


# As it is installed


def test_doctor_says_what_is_installed(call: Call) -> None:
    status, out = call()
    assert status == 0
    lines = out.splitlines()
    assert lines[0].endswith(f"with onnxruntime {onnxruntime.__version__}: graphs run")
    for title in ("versions", "release", "providers", "devices", "machine"):
        assert title in lines
    assert any(line.split() == ["CPUExecutionProvider", "starts"] for line in lines)
    assert any(line.split()[:3] == ["CPUExecutionProvider", "CPU", "of"] for line in lines)


def test_doctor_writes_json_with_the_keys_of_its_page(call: Call) -> None:
    status, out = call("--json")
    data = json.loads(out)
    assert status == 0
    assert data["runs"] is True
    assert list(data) == [
        "runs", "packages", "release", "traps", "providers", "devices", "machine", "installs", "findings",
    ]  # fmt: skip
    assert {one["provider"] for one in data["devices"]} == {one.ep_name for one in onnxruntime.get_ep_devices()}
    assert list(data["release"]) == [
        "version", "build", "is_measured", "takes_opset", "takes_ir", "opset", "ir", "table", "registry", "lacks",
        "adds",
    ]  # fmt: skip
    assert list(data["machine"]) == [
        "system", "architecture", "processor", "cores", "threads", "usable", "limit", "instructions", "bytes_saturate",
        "huge_pages", "gathers",
    ]  # fmt: skip
    assert list(data["packages"]) == ["versions", "distributions", "imported"]
    assert data["packages"]["versions"]["onnxruntime"] == data["release"]["version"] == onnxruntime.__version__
    assert data["release"]["takes_opset"] >= data["release"]["opset"] >= 24
    assert {"name": "CPUExecutionProvider", "has_started": True, "reason": ""} in data["providers"]


COUNTED = """
import sys
from tests.support.calls import calls

def doctor():
    from graphcore.cli import main
    main(["doctor"])

print(calls(doctor), file=sys.stderr)
"""


def test_doctor_makes_few_calls_as_a_process() -> None:
    """It makes half a million, imports included."""
    done = subprocess.run([sys.executable, "-c", COUNTED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stderr) < 2_000_000
    assert done.stdout.splitlines()[0].endswith(": graphs run")


# Another release


@pytest.fixture(autouse=True)
def rules_are_made_anew() -> Iterator[None]:
    """Clear caches, so that other tests do not lower for pretended traps."""
    yield
    legality.cache_clear()


def test_doctor_says_which_table_and_traps_count_when_the_release_was_not_measured(
    pretend: Pretend, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = table_of("cpu").newest.version
    match = traps.TrapRanges((newest,), {"Sign int64": ReleaseRange("", "1.20.1"), "Div int8": ReleaseRange()})
    monkeypatch.setattr(traps, "trap_ranges", lambda: match)
    monkeypatch.setattr(release, "trap_ranges", lambda: match)
    pretend([*lacking("Where int8", "TopK"), SimpleNamespace(**{**vars(listed()[0]), "op_name": "Hyper"})])
    status, out = call("--traps")
    assert status == 0
    assert "onnxruntime 99.0, or this build of it, was not measured" in " ".join(out.split())
    assert f"pip install onnxruntime=={newest}" in out
    assert f"of {newest}, the nearest measured release" in out
    assert "fewer kernels than the table: " in out
    assert "1 of 2 are in force" in out
    shown = {line.strip().partition("  ")[0]: line.split("  ")[-1] for line in out.splitlines()}
    assert shown["Div int8"].endswith("in force: seen in every release")
    assert shown["Sign int64"].endswith("not in force: seen up to 1.20.1")
    result = report().release
    assert result is not None
    assert (result.is_measured, result.registry, result.table) == (False, "read", newest)
    assert "int8" in result.lacks["Where"]
    assert result.lacks["TopK"]


@pytest.mark.parametrize("registry", ["unreadable", "unsafe"])
def test_doctor_says_why_the_build_was_not_asked(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch, registry: str
) -> None:
    pretend([])
    if registry == "unsafe":
        monkeypatch.setattr(state, "get_available_providers", lambda: ["MineExecutionProvider"])
    result = report()
    assert result.runs
    assert result.release is not None
    assert result.release.registry == registry
    assert any("the table is used" in line for line in diagnosing.text(result))


def test_doctor_fails_when_the_release_is_too_old_to_run_graphs(
    pretend: Pretend, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(version="1.5.0")
    monkeypatch.setattr(installed, "takes", lambda opset, ir=8: opset <= 12)
    status, out = call()
    assert status == 1
    assert "graphs do not run" in out.splitlines()[0]
    assert "does not support opset 24" in out
    assert "pip install -U onnxruntime" in out
    assert "Traceback" not in out


@pytest.mark.parametrize(
    ("version", "value", "is_noted"),
    [("1.28.0", None, False), ("1.32.0", None, True), ("99.0", "0", True), ("99.0", "1", False)],
)
def test_doctor_notes_telemetry_where_it_was_seen_and_is_not_switched_off(
    monkeypatch: pytest.MonkeyPatch, pretend: Pretend, version: str, value: str | None, is_noted: bool
) -> None:
    pretend(version=version)
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    if value is not None:
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", value)
    assert bool(texts(report(), "telemetry")) is is_noted


# Other packages


class Installed:
    """A distribution, as importlib.metadata finds it."""

    def __init__(self, name: str, version: str, module: str = "onnxruntime") -> None:
        self.metadata, self.version, self._module = {"Name": name}, version, module
        self.files = [f"{module}/__init__.py"]

    def read_text(self, name: str) -> str | None:
        return f"{self._module}\n" if name == "top_level.txt" else None


def test_doctor_says_which_is_imported_when_two_packages_bring_one_module(
    monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    there = [
        Installed("onnxruntime_gpu", "1.30.0"),
        Installed("onnxruntime", "1.32.0"),
        Installed("onnxruntime-extensions", "0.14", "onnxruntime_extensions"),
        Installed("numpy", "2.0", "numpy"),
    ]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: there)
    monkeypatch.setattr(onnxruntime, "package_name", "onnxruntime-gpu", raising=False)
    assert machine.distributions() == (
        Distribution("onnxruntime", "1.32.0"),
        Distribution("onnxruntime-gpu", "1.30.0"),
    )
    status, out = call()
    assert status == 0  # graphs run, on one of the two
    message = " ".join(out.split())
    assert (
        f"onnxruntime 1.32.0, onnxruntime-gpu 1.30.0; onnxruntime-gpu {onnxruntime.__version__} is imported" in message
    )
    assert "keep one: pip uninstall -y onnxruntime onnxruntime-gpu, then pip install onnxruntime-gpu" in message


def test_doctor_fails_when_one_package_took_files_of_the_other_with_it(
    monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [Installed("onnxruntime-gpu", "1.30.0")])
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace())
    status, out = call()
    assert status == 1
    assert "problem: onnxruntime cannot be imported" in out
    assert "pip install --force-reinstall --no-deps onnxruntime-gpu" in out
    assert out.splitlines()[0].endswith("with onnxruntime that cannot be imported: graphs do not run")


def test_doctor_fails_when_there_is_no_onnxruntime(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setattr("importlib.metadata.distributions", list)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    status, out = call("--json")
    data = json.loads(out)
    assert status == 1
    assert data["findings"][0]["help"] == "pip install onnxruntime"
    assert data["release"] is None
    assert data["machine"]["architecture"] == platform.machine()


# Providers


def test_doctor_lists_no_devices_where_the_release_reports_none(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.delattr(onnxruntime, "get_ep_devices")
    status, out = call()
    assert status == 0
    assert "devices" not in out.splitlines()


def test_doctor_says_why_a_provider_does_not_start(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    status, out = call("--json")
    data = json.loads(out)
    assert status == 0
    assert [one["has_started"] for one in data["providers"]] == [False, True]
    assert "CUDAExecutionProvider" in data["providers"][0]["reason"]  # which the build says that it does not have
    assert "CUDAExecutionProvider" not in data["installs"]
    (note,) = [one for one in data["findings"] if one["subject"] == "providers"]
    assert note["text"].startswith("CUDAExecutionProvider is installed and does not start: ")
    assert "cuDNN" in note["help"]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print('MineExecutionProvider CPUExecutionProvider')", None),
        ("import os; os.abort()", "its process ended with status -6 and printed nothing"),
        ("import time; time.sleep(1e6)", "it had not started after 0.5 s"),
        ("raise ValueError('the device is gone')", "ValueError: the device is gone"),
        (
            'import sys; sys.exit(\'Traceback (most recent call last):\\n  File "a.py", line 2, in <module>\\n'
            "    raise ValueError(text)\\n    ^^^^^^\\nValueError: the device is gone')",
            "ValueError: the device is gone",
        ),
        (
            "import sys; sys.exit('\\x1b[1;31m2026 [E:onnxruntime:Default, a.cc:1 Create] /src/a.cc:2 Get() "
            "[ONNXRuntimeError] : 1 : FAIL : Failed to load /lib/c.so with error: libcublas.so.13: no such file')",
            "libcublas.so.13: no such file",
        ),
    ],
)
def test_start_of_a_provider_is_told_whatever_becomes_of_its_process(
    monkeypatch: pytest.MonkeyPatch, program: str, reason: str | None
) -> None:
    pipe = subprocess.PIPE
    monkeypatch.setattr(release, "SECONDS", 0.5 if "sleep" in program else 300.0)
    monkeypatch.setattr(
        release,
        "_child",
        lambda name: subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe),
    )
    book = Notebook()
    (result,) = release.Starting(["MineExecutionProvider"]).providers(book)
    assert result == Provider("MineExecutionProvider", reason is None, reason or "")
    assert len(book.findings) == (reason is not None)


# Looks that fail


def broken(*args: Any, **kwargs: Any) -> Any:
    raise OSError("out of order")


@pytest.mark.parametrize(
    ("home", "name"),
    [
        (machine, "processor"),
        (machine, "cpu_limit"),
        (machine, "_saturates"),
        (machine, "instructions"),
        (machine, "distributions"),
        (machine, "versions"),
        (release, "beside_table"),
        (release, "in_force"),
        (release, "_newest"),
        (release, "_child"),
        (release, "_reason"),
        (installed, "build_commit"),
        (installed, "newest_opset"),
        (doctor, "_installed"),
        (doctor, "_run"),
    ],
)
def test_doctor_says_it_when_a_look_fails(
    monkeypatch: pytest.MonkeyPatch, pretend: Pretend, call: Call, home: Any, name: str
) -> None:
    pretend()
    monkeypatch.setattr(traps, "trap_ranges", lambda: traps.TrapRanges((), {"Div int8": ReleaseRange()}))
    monkeypatch.setattr(release, "trap_ranges", traps.trap_ranges)
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["MineExecutionProvider", "CPUExecutionProvider"]
    )
    monkeypatch.setattr(home, name, broken)
    status, out = call()
    assert "could not be checked: OSError: out of order" in " ".join(out.split())
    assert "Traceback" not in out
    assert status == ("graphs do not run" in out)
    call("--json")


def test_doctor_fails_when_a_graph_gives_other_numbers(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    import graphcore as gc

    monkeypatch.setattr(gc.runtime.Model, "__call__", lambda self, *feeds: [feeds[1]])
    status, out = call()
    assert status == 1
    assert "problem: [-7, 7] // 2 + [0.5, 0.25] gives [0.5, 0.25] instead of [-3.5, 3.25]" in out
