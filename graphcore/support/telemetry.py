"""Turns off the telemetry of onnxruntime before it is imported. See docs/howto/doctor.md."""

from __future__ import annotations

import contextlib
import os
import sys

SWITCH = "ORT_DISABLE_TELEMETRY"
"""The environment variable that onnxruntime reads when it is imported. Child processes inherit it."""

WANTED = "GRAPHCORE_TELEMETRY"
"""The environment variable that, set to 1, keeps the default telemetry of onnxruntime."""

_OFF = ("1", "true")
_late = False


def turn_off() -> None:
    """Turn telemetry off for this process and its children, unless the environment sets one of the variables.

    If onnxruntime is imported already, its database of events is open: only its events can be turned off.
    """
    global _late
    if os.environ.get(WANTED) == "1" or os.environ.get(SWITCH):
        return
    os.environ[SWITCH] = "1"
    imported = sys.modules.get("onnxruntime")
    if imported is not None:
        _late = True
        with contextlib.suppress(AttributeError):  # partially imported, or a build without it
            imported.disable_telemetry_events()


def is_off() -> bool:
    """Return True if telemetry is off when onnxruntime is imported, in the past or the future."""
    return os.environ.get(SWITCH, "").lower() in _OFF and not _late


def came_late() -> bool:
    """Return True if onnxruntime was imported before graphcore could turn its telemetry off."""
    return _late
