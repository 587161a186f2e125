"""KServe's own client and classes, in a process of their own: its messages and those of Triton's client bear one name.

    python -m tests.scale.kserve_client URL MANIFEST...

It prints what it found as JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import kserve.models
import kubernetes.client
import numpy as np
import yaml
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

CASES: dict[str, tuple[str, Any]] = {
    "floats": ("FP32", np.arange(6, dtype=np.float32).reshape(2, 3)),
    "integers": ("INT64", np.arange(6).reshape(2, 3)),
    "texts": ("BYTES", np.array([["a", "ü", "c"]], object)),
}


async def _inferred(url: str) -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=300))
    results: dict[str, Any] = {"live": await client.is_server_live(url), "ready": await client.is_server_ready(url)}
    for name, (datatype, array) in CASES.items():
        results[name] = []
        for is_binary in (False, True):
            value = InferInput("x", [*array.shape], datatype)
            value.set_data_from_numpy(array, binary_data=is_binary)
            items = [RequestedOutput("y", parameters={"binary_data": is_binary})]
            request = InferRequest(name, [value], request_id="7", request_outputs=items)
            answer = await client.infer(url, request, model_name=name)
            results[name].append([answer.id, answer.outputs[0].as_numpy().tolist()])
    return results


def unknown_fields(value: Any, kind: str, where: str = "") -> list[str]:
    """Return the fields that KServe's class of this name, or that of Kubernetes, has not."""
    listed = re.fullmatch(r"list\[(\w+)\]", kind)
    if listed:
        return [each for i, item in enumerate(value) for each in unknown_fields(item, listed[1], f"{where}[{i}]")]
    if hasattr(kserve.models, kind):
        attribute = getattr(kserve.models, kind)
        types = {label: attribute.openapi_types[name] for name, label in attribute.attribute_map.items()}
        results = [f"{where}.{label}" for label in value if label not in types]
        for label in value.keys() & types.keys():
            results += unknown_fields(value[label], types[label], f"{where}.{label}")
        return results
    if hasattr(kubernetes.client, kind):
        result = getattr(kubernetes.client, kind).from_dict(value)
        return [] if kubernetes.client.ApiClient().sanitize_for_serialization(result) == value else [where]
    plain = {"str": str, "int": int, "bool": bool, "float": float, "object": object}
    return [] if isinstance(value, plain.get(kind, dict)) else [where]


def main(url: str, manifests: list[str]) -> dict[str, Any]:
    """Infer at a server, and look at the fields of manifests."""
    read = [yaml.safe_load(Path(path).read_text()) for path in manifests]
    unknown = [unknown_fields(each, "V1beta1InferenceService") for each in read]
    return {**asyncio.run(_inferred(url)), "unknown": unknown}


if __name__ == "__main__":
    print("FOUND", json.dumps(main(sys.argv[1], sys.argv[2:])))
