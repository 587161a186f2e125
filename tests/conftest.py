"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import settings

# A busy machine makes slow examples, not wrong ones. In CI the examples are the same every time, so that a change is
# never blamed for one that it did not bring.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
