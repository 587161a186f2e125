"""Installed packages, and which of them brings the module onnxruntime."""

from __future__ import annotations

import platform
from importlib import metadata

from graphcore._version import __version__
from graphcore.runtime.doctor.findings import Distribution, Notebook, Packages
from graphcore.runtime.lowering.targets.releases import OLDEST_SUPPORTED, is_supported

_BESIDE = ("numpy", "ml_dtypes", "onnx")
_MODULE = "onnxruntime/__init__.py"
_LATE = ("onnxruntime-openvino",)
"""Distributions that follow the releases of onnxruntime late, and are supported in an older one."""


def versions() -> dict[str, str]:
    """Return the versions of what is installed beside onnxruntime."""
    found = {
        "graphcore": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    return {**found, **{name: _version(name) for name in _BESIDE}}


def distributions() -> tuple[Distribution, ...]:
    """Return the installed distributions that bring the module onnxruntime, by name."""
    found = {}
    for one in metadata.distributions():
        name = (one.metadata["Name"] or "").lower().replace("_", "-")
        if name.startswith(("onnxruntime", "ort-")) and name not in found and _brings_module(one):
            found[name] = Distribution(name, one.version)
    return tuple(found[name] for name in sorted(found))


def find_packages(book: Notebook) -> Packages:
    """Return what is installed; notes two distributions of one module, and a module that cannot be imported."""
    nothing: tuple[Distribution, ...] = ()
    there = book.look("distributions", lambda _: distributions(), nothing, "note")
    names = [one.name for one in there]
    imported, version = "", ""
    try:
        import onnxruntime

        version = onnxruntime.__version__
        imported = getattr(onnxruntime, "package_name", "")
        _ = onnxruntime.InferenceSession, onnxruntime.get_available_providers()
    except Exception as error:  # one of two packages may have taken files of the other with it
        book.add("problem", "onnxruntime", f"onnxruntime cannot be imported: {error}", _mended(names))
        return Packages({**versions(), "onnxruntime": ""}, there, "")
    if len(there) > 1:
        shown = ", ".join(f"{one.name} {one.version}" for one in there)
        used = f"imported is {imported} {version}" if imported else "which one is imported cannot be told"
        book.add("note", "onnxruntime", f"installed at once, of one module: {shown}; {used}", _mended(names))
    if not is_supported(version) and imported not in _LATE:
        text = f"onnxruntime {version} is older than {OLDEST_SUPPORTED}, the oldest that is supported"
        book.add("note", "onnxruntime", text, "pip install -U onnxruntime")
    return Packages({**versions(), "onnxruntime": version}, there, imported)


def _mended(names: list[str]) -> str:
    """Return how one distribution is left whole, of these that are there."""
    if not names:
        return "pip install onnxruntime"
    kept = next((name for name in names if name != "onnxruntime"), names[0])
    if len(names) == 1:
        return f"pip install --force-reinstall --no-deps {kept}"
    return f"keep one: pip uninstall -y {' '.join(names)}, then pip install {kept}, or onnxruntime for the CPU alone"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _brings_module(one: metadata.Distribution) -> bool:
    top = (one.read_text("top_level.txt") or "").split()
    return "onnxruntime" in top or any(str(file) == _MODULE for file in one.files or ())
