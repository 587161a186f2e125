"""Packages of optional extras, and the error that names the extra where one is missing."""

from __future__ import annotations

import importlib.util

from graphcore.errors import MissingExtraError


def require_ray(what: str) -> None:
    """Raise `MissingExtraError` where Ray, its Data or its Serve are not installed. what: what needs them."""
    for package in ("ray", "pyarrow", "starlette"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(
                f"{what}: the package {package} is not installed", help="pip install 'graphcore-engine[ray]'"
            )
