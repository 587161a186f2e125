"""Configurations of all families: whatever a file says, there is a Config that can be built, or one clear error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcore.errors import ModelError, ResourceLimitError
from graphcore.models import _weights, gpt2, llama, resnet, vit

SIZES: dict[str, Any] = {"vocab_size": 11, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1}
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (llama, SIZES | {"model_type": "llama", "num_attention_heads": 2}),
    "mistral": (llama, SIZES | {"model_type": "mistral", "num_attention_heads": 8}),
    "qwen2": (llama, SIZES | {"model_type": "qwen2", "num_attention_heads": 2}),
    "gpt2": (
        gpt2,
        {"model_type": "gpt2", "vocab_size": 11, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2},
    ),
    "resnet": (resnet, {"model_type": "resnet", "embedding_size": 4, "hidden_sizes": [8], "depths": [1]}),
    "vit": (
        vit,
        {
            **{name: SIZES[name] for name in list(SIZES)[1:]},
            "model_type": "vit",
            "num_attention_heads": 2,
            "image_size": 8,
            "patch_size": 4,
        },
    ),
}
NAMES = sorted({name for module, fields in FAMILIES.values() for name in (*module.SCHEMA.fields, *module.SCHEMA.fixed)})
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 20)
    | st.sampled_from([2**30, 2**31])
    | st.floats()
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["factor", "type", "0"]), inner),
    max_leaves=4,
)


@pytest.fixture(autouse=True, scope="module")
def _few_random_weights() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_weights, "MOST_RANDOM", 1 << 22)
        yield


@pytest.mark.parametrize("family", FAMILIES)
def test_configuration_of_few_fields_is_built(family: str) -> None:
    module, fields = FAMILIES[family]
    assert module.build(fields).outputs


@pytest.mark.parametrize("family", FAMILIES)
def test_each_required_field_is_named_when_missing(family: str) -> None:
    module, fields = FAMILIES[family]
    for name in fields:
        with pytest.raises(ModelError, match="model_type is None" if name == "model_type" else f"missing: {name}"):
            module.Config.read({other: value for other, value in fields.items() if other != name})


@pytest.mark.parametrize("family", FAMILIES)
@given(st.dictionaries(st.sampled_from([*NAMES, "id2label", "layer_types", "other"]), VALUES, min_size=1, max_size=3))
def test_any_fields_give_a_graph_or_an_error_that_names_them(family: str, more: dict[str, Any]) -> None:
    module, fields = FAMILIES[family]
    try:
        config = module.Config.read(fields | more)
    except ModelError:
        return
    with contextlib.suppress(ResourceLimitError):  # of random weights, which are too many for some
        assert module.build(config).outputs


def test_configuration_of_another_family_is_refused(tmp_path: Path) -> None:
    for module, _ in FAMILIES.values():
        for other, (another, fields) in FAMILIES.items():
            if another is module:
                continue
            path = tmp_path / "config.json"
            path.write_text(json.dumps(fields))
            with pytest.raises(ModelError, match=f"model_type is '{other}'"):
                module.Config.read(path)
