"""Options and fixtures of all tests."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

import graphcore  # noqa: F401  before a test imports onnxruntime: it turns onnxruntime's telemetry off

# A shell that runs the tests in the background has SIGINT ignored, and what tests start would inherit that: Ctrl-C
# would end none of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes slow examples, not wrong ones. In CI the examples are the same every time, so that a change is
# never blamed for one that it did not bring.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note which tests are marked `numbers` in the report that `.ci/newest.py` reads."""
    for item in items:
        if item.get_closest_marker("numbers"):
            item.user_properties.append(("numbers", "true"))
