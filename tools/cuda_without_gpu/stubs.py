"""Stub libraries of CUDA, cuDNN and TensorRT with the entries that an onnxruntime-gpu links to."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphcore.errors import RunError

_DEVICE = Path(__file__).with_name("device.c")
_PROVIDERS = ("libonnxruntime_providers_cuda.so", "libonnxruntime_providers_tensorrt.so")
_SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|ld-linux|libonnxruntime")
"""The libraries that a machine or the package has."""

_LOADED = re.compile(rb"(?<!\w)cudnn[A-Z]\w+(?=[\0(])")
"""The names of entries of cuDNN that a provider, or `device.c`, has: the provider looks them up when it runs."""

_CUDNN = "libcudnn.so.9"

_OWN = "Provider_"
"""The beginning of names that onnxruntime's libraries have for each other."""


def built(package: Path, folder: Path) -> Path:
    """Return the folder with the stubs for an installed onnxruntime-gpu; the first call compiles them.

    package: the folder that has `onnxruntime`. folder: the folder to write to. Raises `RunError` without a compiler.
    """
    tools = _tools()
    libraries = [package / "onnxruntime" / "capi" / name for name in _PROVIDERS]
    missing = [path.name for path in libraries if not path.is_file()]
    if missing:
        raise RunError(f"{package}: the package has no {' and no '.join(missing)}", help="install onnxruntime-gpu")
    sources = _DEVICE.read_bytes() + Path(__file__).read_bytes()
    key = hashlib.sha256(sources + repr([os.stat(p).st_size for p in libraries]).encode()).hexdigest()
    stamp = folder / "key"
    if stamp.is_file() and stamp.read_text() == key:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    entries = linked(libraries, tools)
    major = next((n for name in entries for n in re.findall(r"^libcudart\.so\.(\d+)", name)), "13")
    _run([tools["cc"], "-c", "-fPIC", "-O1", "-w", f"-DCUDA={major}", str(_DEVICE), "-o", str(folder / "device.o")])
    for name, names in entries.items():
        _compile(tools["cc"], folder, name, names)
    stamp.write_text(key)
    return folder


def _tools() -> dict[str, str]:
    results = {name: shutil.which(os.environ.get(name.upper(), name)) for name in ("cc", "nm", "readelf")}
    missing = [name for name, path in results.items() if path is None]
    if missing:
        raise RunError(
            f"stubs of CUDA cannot be compiled: there is no {' and no '.join(missing)}",
            help="install a C compiler and binutils, such as apt-get install gcc",
        )
    return {name: path for name, path in results.items() if path is not None}


def linked(libraries: Sequence[Path], tools: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the libraries to stub by name, and of each the entries that are linked to, with their version or none.

    An entry without a version does not tell its library: all libraries without versions have it.
    """
    looked_up = {name.decode() for path in (*libraries, _DEVICE) for name in _LOADED.findall(path.read_bytes())}
    results = {_CUDNN: dict.fromkeys(sorted(looked_up), _CUDNN)}
    unversioned: set[str] = set()
    for library in libraries:
        header = _run([tools["readelf"], "--dynamic", "--wide", str(library)])
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", header):
            if not _SYSTEM.match(name):
                results.setdefault(name, {})
        for line in _run([tools["nm"], "--dynamic", "--undefined-only", str(library)]).splitlines():
            kind, symbol = line.split()[-2:]
            name, _, version = symbol.replace("@@", "@").partition("@")
            if version in results:
                results[version][name] = version
            elif not version and kind == "U" and not name.startswith(_OWN):
                unversioned.add(name)
    for names in results.values():
        if not names:
            names.update(dict.fromkeys(sorted(unversioned), ""))
    return results


def _compile(cc: str, folder: Path, library: str, names: Mapping[str, str]) -> None:
    """Compile one library: entries that `device.c` does not define return 0."""
    source, script = folder / f"{library}.c", folder / f"{library}.map"
    source.write_text("".join(f"__attribute__((weak)) long {name}(void) {{ return 0; }}\n" for name in names))
    version = next(iter(names.values()), "")
    exported = "".join(f"  {name};\n" for name in names)
    script.write_text(f"{version} {{\n{' global:' if names else ''}\n{exported} local: *;\n}};\n".lstrip())
    options = [f"-Wl,-soname,{library}", f"-Wl,--version-script={script}"]
    target = str(folder / library)
    _run([cc, "-shared", "-fPIC", "-w", *options, "-o", target, str(source), str(folder / "device.o")])


def _run(command: Sequence[str]) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RunError(f"{command[0]} failed: {' '.join(done.stderr.split())[-600:]}", help="see its message")
    return done.stdout
