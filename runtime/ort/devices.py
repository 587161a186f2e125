"""Devices that onnxruntime reports."""

from __future__ import annotations

from typing import Any

import onnxruntime


def available() -> list[Any]:
    """Return the devices that onnxruntime reports; none if the release does not report devices."""
    reported = getattr(onnxruntime, "get_ep_devices", None)
    return [] if reported is None else list(reported())
