"""The telemetry of onnxruntime, turned off before onnxruntime is imported. See docs/howto/doctor.md."""

from __future__ import annotations

import contextlib
import os
import sys

SWITCH = "ORT_DISABLE_TELEMETRY"
"""The variable of the environment that onnxruntime reads once, as it is imported. Children inherit it."""

WANTED = "GRAPHCORE_TELEMETRY"
"""The variable that, set to 1, leaves the telemetry of onnxruntime as onnxruntime has it."""

_OFF = ("1", "true")
_late = False


def turn_off() -> None:
    """Turn telemetry off for this process and its children, if the environment says nothing about it.

    An onnxruntime that is imported already has opened its database of events: its events are turned off, which is all
    that can be done then.
    """
    global _late
    if os.environ.get(WANTED) == "1" or os.environ.get(SWITCH):
        return
    os.environ[SWITCH] = "1"
    imported = sys.modules.get("onnxruntime")
    if imported is not None:
        _late = True
        with contextlib.suppress(AttributeError):  # half imported, or a build without it
            imported.disable_telemetry_events()


def is_off() -> bool:
    """Return whether onnxruntime found telemetry turned off as it was imported, or will find it so."""
    return os.environ.get(SWITCH, "").lower() in _OFF and not _late


def came_late() -> bool:
    """Return whether onnxruntime was imported before graphcore could turn its telemetry off."""
    return _late
