"""A greedy decoder with a cache of keys and values, as one model: it gives the tokens of step-by-step execution."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import Graph
from tests.support.decoders import END, decoder, recomputed, stepwise, weights


@pytest.mark.parametrize("seed", range(4))
def test_decoder_in_one_model_gives_the_tokens_of_single_steps(seed: int) -> None:
    arrays = weights(seed)
    graph = decoder(arrays)
    onnx.checker.check_model(graph.to_onnx(), full_check=True)
    model = gc.InferenceSession().load(graph)
    again = gc.InferenceSession().load(Graph.load(graph.to_onnx(target="onnx")))
    for prompt, most in (([3], 12), ([1, 5, 9, 2], 20), ([7, 7], 0)):
        tokens, keys = model(np.array(prompt), np.array(most))
        want, cache = stepwise(arrays, prompt, most)
        assert tokens.tolist() == want
        np.testing.assert_array_equal(keys, cache)
        assert again(np.array(prompt), np.array(most))[0].tolist() == want
        text = list(prompt)
        for token in want:
            assert recomputed(arrays, text) == token
            text.append(token)
        assert len(want) == most or recomputed(arrays, text) == END
