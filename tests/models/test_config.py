"""Configurations of all families: any file gives a Config that can be built, or one clear error."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcore.errors import ModelError, ResourceLimitError
from graphcore.models import _config, decoder, encoder, families, gpt2, llama, minilm, resnet, vit

SIZES: dict[str, Any] = {"vocab_size": 11, "hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 1}
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (llama, SIZES | {"model_type": "llama", "num_attention_heads": 2}),
    "mistral": (llama, SIZES | {"model_type": "mistral", "num_attention_heads": 8}),
    "qwen2": (llama, SIZES | {"model_type": "qwen2", "num_attention_heads": 2}),
    **{
        kind: (decoder, SIZES | {"model_type": kind, "num_attention_heads": 2 if kind == "gpt_neox" else 8})
        for kind in families.FAMILIES
        if kind not in ("llama", "mistral", "qwen2", "gpt2", "qwen2_moe", "qwen3_moe")  # the last have many experts
    },
    "gpt2": (
        gpt2,
        {"model_type": "gpt2", "vocab_size": 11, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2},
    ),
    **{
        kind: (encoder, SIZES | {"model_type": kind, "num_attention_heads": 2, "max_position_embeddings": 8})
        for kind in ("bert", "roberta", "mpnet", "modernbert")
    },
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
SCHEMAS = [encoder.SCHEMA, resnet.SCHEMA, vit.SCHEMA, *(family.schema for family in families.FAMILIES.values())]
NAMES = sorted({name for schema in SCHEMAS for name in (*schema.fields, *schema.fixed)})
OTHERS = ("id2label", "layer_types", "rope_parameters", "pad_token_id", "norm_eps", "other")
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
        patch.setattr(_config, "MAX_RANDOM_BYTES", 1 << 22)
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
@given(st.dictionaries(st.sampled_from([*NAMES, *OTHERS]), VALUES, min_size=1, max_size=3))
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
            if another.Config is module.Config:
                continue
            path = tmp_path / "config.json"
            path.write_text(json.dumps(fields))
            with pytest.raises(ModelError, match=f"model_type is '{other}'"):
                module.Config.read(path)


SMALL: dict[Any, dict[str, Any]] = {
    llama: {"vocabulary": 11, "width": 16, "inner": 8, "layers": 1, "heads": 2, "kv_heads": 1, "size": 8},
    resnet: {"stem": 4, "widths": (8,), "depths": (1,), "classes": 3},
    vit: {"width": 16, "layers": 1, "heads": 2, "inner": 8, "image": 8, "patch": 4, "classes": 3},
    encoder: {
        "vocabulary": 11, "width": 16, "inner": 8, "layers": 2, "heads": 2, "positions": 8, "first": 2, "buckets": 8,
        "window": 2, "every": 2, "types": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("module", "values", "why"),
    [
        (llama, {"width": 0, "layers": 1.5, "tied": "no"}, "width is 0, .*; layers is 1.5, .*; tied is 'no'"),
        (llama, {"heads": 3, "kv_heads": 2}, "3 query heads are not a multiple of 2 key heads"),
        (llama, {"size": 7}, "heads have 7 features"),
        (llama, {"biases": "qx"}, "biases is 'qx', not a subset of 'qkvo'"),
        (llama, {"theta": float("nan")}, "theta is nan"),
        (llama, {"theta": 1.0}, "rope_theta is 1.0, not a number above 1"),
        (llama, {"scaling": {"rope_type": "ntk"}}, "rope_type is 'ntk'; supported is"),
        (llama, {"norm": "batch"}, "norm is 'batch'"),
        (llama, {"activation": "quick"}, "activation is 'quick', not none, silu, tanh"),
        (llama, {"rotary": 16}, "16 features are rotated, but heads have 8"),
        (llama, {"windows": (1, 2)}, r"windows is \(1, 2\), not a number of at least 0 for each of 1 layers"),
        (llama, {"experts": 2, "top_k": 3}, "3 experts of a token, but 2 experts"),
        (llama, {"layout": "llama"}, "layout is 'llama', not a Layout"),
        (llama, {"scaling": {"rope_type": "linear"}}, r"has \[\], not \['factor'\]"),
        (llama, {"scaling": 3}, "the scaling of rotary angles is 3"),
        (resnet, {"widths": (6,)}, r"widths \(hidden_sizes\) \[6\] of bottlenecks are not multiples of 4"),
        (resnet, {"widths": (8, 8)}, r"2 widths \(hidden_sizes\), but 1 depths"),
        (resnet, {"depths": (0,)}, r"depths is \(0,\), not a list of whole numbers above 0"),
        (llama, {"layers": 2**30}, "layers is 1073741824, but at most 10000 are supported"),
        (resnet, {"depths": (2**30,)}, "1073741824 layers, but at most 10000 are supported"),
        (vit, {"heads": 5}, r"width \(hidden_size\) 16 is not a multiple of heads \(num_attention_heads\) 5"),
        (vit, {"patch": 9}, r"an image \(image_size\) of 8 is smaller than a patch \(patch_size\) of 9"),
        (minilm, {"layers": -1}, "layers is -1"),
        (encoder, {"first": 8}, "8 positions end before the first one, 8"),
        (encoder, {"first": 0, "types": 1.5}, "first is 0, not a whole number above 0; types is 1.5"),
        (encoder, {"activation": "tanh"}, "activation is 'tanh'; supported is gelu, gelu_new, .*, relu, silu"),
        (encoder, {"biases": "x"}, "biases is 'x', not a subset of 'anm'"),
    ],
)
def test_values_of_a_config_are_looked_at_however_it_is_made(module: Any, values: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        module.Config(**{**SMALL.get(module, {}), **values})


def test_config_whose_layout_has_other_weights_is_an_error() -> None:
    with pytest.raises(ModelError, match="the layout has no weight 'attn_qkv'"):
        llama.build(llama.Config(**{**SMALL[llama], "fused": True}))


@pytest.mark.parametrize("module", SMALL)
@given(data=st.data())
def test_any_values_of_a_config_give_a_graph_or_an_error(module: Any, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([entry.name for entry in dataclasses.fields(module.Config)]))
    with contextlib.suppress(ModelError, ResourceLimitError):
        module.build(module.Config(**{**SMALL[module], name: data.draw(VALUES)}))


def test_rotary_scaling_of_a_config_is_read_in_either_spelling() -> None:
    spellings: list[dict[str, Any]] = [{"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 2.0}]
    for item in spellings:
        config = llama.Config(scaling=item)
        assert config.scaling == {"rope_type": "linear", "factor": 2.0}
        assert np.allclose(llama.angles(config, 8)[0][2::2], llama.angles(llama.Config(), 4)[0][1:])
    for item in ({}, {"type": "default"}):
        assert llama.Config(scaling=item) == llama.Config()


def test_numbers_of_a_config_may_be_numpys() -> None:
    def numpys(value: Any) -> Any:
        return [np.int32(v) for v in value] if isinstance(value, tuple) else np.array(value)[()]

    for module, values in SMALL.items():
        result = module.Config(**{name: numpys(value) for name, value in values.items()})
        assert result == module.Config(**values)
        assert {type(v) for v in dataclasses.astuple(result)} <= {int, float, bool, str, tuple, frozenset, type(None)}
        assert hash(result) == hash(module.Config(**values))


@pytest.mark.parametrize("ignore", ["name", 3, [["name"]], None])
def test_names_to_pass_over_are_a_list_of_names(ignore: Any) -> None:
    with pytest.raises(ModelError, match="must be a list of names, got"):
        llama.Config.read(FAMILIES["llama"][1], ignore)


@pytest.mark.parametrize("message", [3, "full_attention", ["full_attention", "linear_attention"], [None], [["x"]]])
def test_layers_that_attend_in_another_way_are_refused(message: Any) -> None:
    fields = FAMILIES["qwen2"][1] | {"layer_types": message}
    with pytest.raises(ModelError, match="layer_types"):
        llama.Config.read(fields)
    assert llama.Config.read(fields, ["layer_types"]) == llama.Config.read(FAMILIES["qwen2"][1])
    results = ["full_attention", "sliding_attention"]
    two = fields | {"layer_types": results, "sliding_window": 64, "use_sliding_window": True, "num_hidden_layers": 2}
    assert llama.Config.read(two).windows == (0, 64)
    with pytest.raises(ModelError, match="layer_types has 2 names, but there are 1 layers"):
        llama.Config.read(fields | {"layer_types": results})


@pytest.mark.parametrize("module", SMALL)
@pytest.mark.parametrize("seed", [-1, "1", 1.0, True, None])
def test_seed_that_is_none_is_refused(module: Any, seed: Any) -> None:
    with pytest.raises(ModelError, match="seed must be an integer of at least 0"):
        module.build(module.Config(**SMALL[module]), seed=seed)


@pytest.mark.parametrize("module", SMALL)
def test_configuration_of_another_family_is_named(module: Any) -> None:
    for other, values in SMALL.items():
        if other is not module:
            name = other.Config.__module__.rpartition(".")[2]
            with pytest.raises(
                ModelError, match=rf"config must be a Config of this model, a dict or a path, got {name}.Config"
            ):
                module.build(other.Config(**values))


@pytest.mark.parametrize("module", SMALL)
def test_masked_weights_are_refused(module: Any) -> None:
    config = module.Config(**SMALL[module])
    weights = {name: np.zeros(shape, np.float32) for name, shape in module.shapes(config).items()}
    last = list(weights)[-1]
    weights[last] = np.ma.masked_array(weights[last], True)
    with pytest.raises(ModelError, match=f"1 of another dtype: {last} has type MaskedArray"):
        module.build(config, weights)


def test_tensors_that_would_get_one_name_are_both_kept() -> None:
    config = llama.Config(layers=1)
    tensors: Any = {"model.norm.weight": np.ones(1), "output_norm.weight": np.zeros(1)}
    other: Any = dict(reversed(tensors.items()))
    for item in (tensors, other):
        result = llama.named(item, config)
        assert {name: array.item() for name, array in result.items()} == {name: a.item() for name, a in item.items()}
    config = gpt2.config(vocabulary=11, width=16, inner=8, layers=1, heads=2, positions=8)
    weights = {name: np.zeros(shape, np.float32) for name, shape in gpt2.shapes(config).items()}
    twice = {"wte.weight": weights["transformer.wte.weight"]}
    for both in (twice | weights, weights | twice):
        with pytest.raises(ModelError, match=r"1 unexpected: wte\.weight\n"):
            gpt2.build(config, both)
