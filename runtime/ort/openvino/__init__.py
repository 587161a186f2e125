"""The OpenVINO provider: which graphs it computes, and its sessions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphcore.runtime.ort.openvino.session import *  # noqa: F403 - the names for type checkers
else:

    def __getattr__(name: str) -> Any:
        """Import a name of its sessions when it is first used: sessions of other providers need none."""
        return getattr(import_module("graphcore.runtime.ort.openvino.session"), name)
