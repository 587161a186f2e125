"""Conflicts with other distributions that install a package `graphcore`: their files and ours overwrite each other."""

from __future__ import annotations

import os
import warnings

from graphcore._version import FOLDER

DISTRIBUTION = "graphcore-engine"
FOREIGN = {
    "apps.py": "graphcore-kernel 0.2.3",
    "graphcore.py": "graphcore 0.9.1",
    "libgraphcore.so": "graphcore-studio 0.2.3",
}
"""Files that graphcore does not have, and the releases of other distributions in which they were seen. An import looks
for these alone: to look through all distributions takes a second."""


def warn_of_conflict() -> None:
    """Warn if a file of `FOREIGN` is in the package."""
    seen = [release for name, release in FOREIGN.items() if os.path.exists(os.path.join(FOLDER, name))]
    if seen:
        text, help = conflict() or (f"{FOLDER} has files of {', '.join(seen)}", how_to_fix([]))
        warnings.warn(f"graphcore: {text}\n  help: {help}", RuntimeWarning, stacklevel=3)


def conflict() -> tuple[str, str] | None:
    """Return a text about files that another distribution installs too or that are missing, and the fix; else None."""
    from importlib import metadata

    files: dict[str, set[str]] = {}
    for each in metadata.distributions(path=[os.path.dirname(FOLDER)]):
        record = each.read_text("RECORD") or ""  # `files` leaves missing ones out from Python 3.12 on
        listed = {line.partition(",")[0] for line in record.splitlines() if not line.startswith('"')}
        names = {name for name in listed if _is_shared(name)}
        files[f"{each.metadata['Name']} {each.version}"] = names
    ours: set[str] = set().union(*(files.pop(name) for name in [*files] if name.startswith(f"{DISTRIBUTION} ")))
    texts = [
        f"{other} also installs {_listed(ours & names or names)}" for other, names in sorted(files.items()) if names
    ]
    missing = {name for name in ours if not os.path.exists(os.path.join(os.path.dirname(FOLDER), name))}
    if missing:
        texts.append(f"files of {DISTRIBUTION} are missing: {_listed(missing)}")
    others = [name.partition(" ")[0] for name, names in sorted(files.items()) if names]
    return ("; ".join(texts), how_to_fix(others)) if texts else None


def how_to_fix(others: list[str]) -> str:
    """Return the commands that leave graphcore-engine alone installed."""
    remove = f"pip uninstall -y {' '.join(others)}, then " if others else ""
    separate = "; or use an environment for each" if others else ""
    return f"{remove}install {DISTRIBUTION} again with pip install --force-reinstall --no-deps{separate}"


def _is_shared(name: str) -> bool:
    """Return True for files of the package and the script `graphcore`."""
    folder, _, rest = name.partition("/")
    is_script = folder == ".." and os.path.splitext(os.path.basename(name))[0] == "graphcore"
    return is_script or (folder == "graphcore" and not rest.endswith(".pyc"))


def _listed(names: set[str]) -> str:
    shown = sorted(names, key=lambda name: (name.count("/"), name))
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
