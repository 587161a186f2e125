"""The stubs of CUDA that `tools/cuda_without_gpu` compiles, on a provider of two functions."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from graphcore.errors import RunError
from tools.cuda_without_gpu import stubs

needs_compiler = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "nm", "readelf"))), reason="a C compiler and binutils make the stubs"
)

RUNTIME = "int cudaGetDeviceCount(int *count) { return 7; } int cudaUnknown(void) { return 7; }"
VERSION = "libcudart.so.13 { global: *; };"
PROVIDER = """
int cudaGetDeviceCount(int *); int cudaUnknown(void); int getPluginRegistry(void); const char *name = "cudnnAddTensor";
int Provider_GetHost(void);
int use(void) { return cudaGetDeviceCount(0) + cudaUnknown() + getPluginRegistry() + Provider_GetHost(); }
"""


def compiled(folder: Path, name: str, source: str, *options: str) -> None:
    (folder / "source.c").write_text(source)
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", *options, "source.c", "-o", name]
    subprocess.run(command, cwd=folder, check=True)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose providers link to a runtime of CUDA, and to a library whose entries have no version."""
    capi = tmp_path / "package" / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    (capi / "script.map").write_text(VERSION)
    compiled(capi, "libcudart.so.13", RUNTIME, "-Wl,--version-script=script.map")
    compiled(capi, "libnvinfer.so.10", "")
    for name in ("libonnxruntime_providers_cuda.so", "libonnxruntime_providers_tensorrt.so"):
        linked = ("-L.", "-l:libcudart.so.13", "-l:libnvinfer.so.10")
        compiled(capi, name, PROVIDER, "-Wl,--no-as-needed", "-Wl,--unresolved-symbols=ignore-all", *linked)
    return tmp_path / "package"


@needs_compiler
def test_stubs_have_the_entries_that_a_provider_links_to(package: Path, tmp_path: Path) -> None:
    folder = stubs.built(package, tmp_path / "stubs")
    runtime = ctypes.CDLL(str(folder / "libcudart.so.13"))
    count = ctypes.c_int(-1)
    assert runtime.cudaGetDeviceCount(ctypes.byref(count)) == 0
    assert count.value == 1
    assert runtime.cudaUnknown() == 0
    with pytest.raises(AttributeError):
        runtime.cudaMalloc  # noqa: B018  device.c has it, and the provider does not link to it
    assert ctypes.CDLL(str(folder / "libcudnn.so.9")).cudnnAddTensor() == 0
    other = ctypes.CDLL(str(folder / "libnvinfer.so.10"))
    other.getPluginRegistry.restype = ctypes.c_void_p
    assert other.getPluginRegistry()
    with pytest.raises(AttributeError):
        other.Provider_GetHost  # noqa: B018  onnxruntime's own
    before = (folder / "libcudart.so.13").stat().st_mtime_ns
    assert stubs.built(package, folder) == folder
    assert (folder / "libcudart.so.13").stat().st_mtime_ns == before  # compiled once


def test_error_says_what_stubs_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "cc" else name)
    with pytest.raises(RunError, match="there is no cc") as raised:
        stubs.built(tmp_path, tmp_path / "stubs")
    assert "install a C compiler" in raised.value.help
    monkeypatch.setattr(shutil, "which", lambda name: name)
    with pytest.raises(RunError, match=r"no libonnxruntime_providers_cuda\.so and no lib"):
        stubs.built(tmp_path, tmp_path / "stubs")
