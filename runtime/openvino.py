"""OpenVINO's execution provider: its options, the precision that it computes a graph in, and which graphs it is given.

The provider compiles all nodes that it knows, whatever their dtypes, and computes integers in 32 bits at most. A graph
with a node that it would take and get wrong is run by the CPU provider of the same package instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from graphcore.errors import GraphError

PROVIDER = "OpenVINOExecutionProvider"

_HINT = "INFERENCE_PRECISION_HINT"


def options(hint: str) -> dict[str, str]:
    """The options with which OpenVINO computes floats in a precision: "f32", "bf16" or "f16"."""
    return {"device_type": "CPU", "load_config": json.dumps({"CPU": {_HINT: hint}})}


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """What a user gives for the provider: `load_config` may be a mapping or JSON. Raises `GraphError`."""
    config = options.get("load_config")
    if config is None:
        return dict(options)
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            config = None
    if not isinstance(config, Mapping) or not all(isinstance(part, Mapping) for part in config.values()):
        raise GraphError(
            f"InferenceSession: load_config={options['load_config']!r} are no properties of devices",
            help='give a mapping, such as {"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}',
        )
    held = {device: dict(part) for device, part in config.items()}
    held.setdefault("CPU", {}).setdefault(_HINT, "f32")
    return {**options, "load_config": json.dumps(held)}
