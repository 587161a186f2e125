"""The opsets that a model says it uses, and in which of them an operator is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from graphcore.errors import ModelError
from graphcore.onnx.proto.limits import check_text
from graphcore.onnx.schemas.schemas import schema_of

OLDEST = 7
"""The oldest opset that is read: before it, broadcasting was another."""

_SHOWN = 100
"""Characters of a name that errors show."""


def versions_of(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """The version of each domain. Raises `ModelError` where one has two."""
    found: dict[str, int] = {}
    check_text((entry.domain for entry in imports), "an opset")
    for entry in imports:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if found.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"load: the model uses opset {found[domain]} and {entry.version} of {domain[:_SHOWN] or 'ONNX'}",
                help="write it with one of them",
            )
    return found


def version_of(versions: Mapping[str, int], domain: str, op_type: str, place: object) -> int:
    """The opset that an operator is of. Raises `ModelError` where the model does not say, and for one not read."""
    version = versions.get(domain)
    if version is None:
        if domain:
            return 1
        raise ModelError(f"load: {place}: the model does not say which opset it uses", help="write the model again")
    newest = onnx.defs.onnx_opset_version()
    if not domain and version < OLDEST and _is_same(op_type, version, OLDEST):
        return OLDEST
    if not domain and not OLDEST <= version <= newest:
        raise ModelError(
            f"load: {place}: the model uses opset {version}, and {OLDEST} to {newest} are read",
            help="convert it with onnx.version_converter" if version < OLDEST else "install a newer onnx",
        )
    return version


def _is_same(op_type: str, version: int, other: int) -> bool:
    """Return whether an operator did not change between two opsets."""
    first, second = schema_of(op_type, "", version), schema_of(op_type, "", other)
    return first is not None and second is not None and first.since_version == second.since_version
