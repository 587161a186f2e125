"""The code of docs/numbers.md about complex numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, ops

PAGE = (Path(__file__).parents[2] / "docs" / "numbers.md").read_text()


def test_code_of_the_page_runs_and_gives_the_signal_back() -> None:
    text = PAGE[PAGE.index("## Complex numbers") : PAGE.index("### Errors of complex functions")]
    first, second = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    namespace: dict[str, Any] = {"gc": gc, "ops": ops}
    exec(first, namespace)
    z = np.array([1 + 2j, -3j], np.complex64)
    y, size = gc.InferenceSession().load(namespace["graph"])(z)
    np.testing.assert_allclose(y, np.exp(z * 1j), rtol=1e-6)
    np.testing.assert_allclose(size, abs(z), rtol=1e-6)

    exec(second, namespace)
    assert namespace["spectrum"].dtype is DType.complex64
    model = gc.InferenceSession().load(namespace["graph"])
    x = np.random.default_rng(0).standard_normal((2, 80)).astype(np.float32)
    (got,) = model(x)  # of noise nearly all of the spectrum is kept
    np.testing.assert_allclose(got[:, 8:-8], x[:, 8:-8], atol=0.05)
    quiet = np.random.default_rng(1).uniform(-0.01, 0.01, (1, 160)).astype(np.float32)
    assert not model(quiet)[0].any()  # below the mask everywhere
    tone = np.sin(2 * np.pi * np.arange(160) / 8).astype(np.float32)[None]
    np.testing.assert_allclose(model(tone)[0][:, 8:-8], tone[:, 8:-8], atol=0.02)
