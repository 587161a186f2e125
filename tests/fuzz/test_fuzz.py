"""Short runs of the fuzzer from fixed seeds; planted faults are found, shrunk and printed as a test."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis.stateful import RuleBasedStateMachine, rule

import graphcore as gc
from graphcore import DType, ops
from graphcore.runtime.lowering.targets.traps import switched_off
from tests.fuzz import chains, elements, limit, mutations, odd_feeds, operators, states, values, ways
from tests.fuzz.mutations import mutated, sources
from tests.fuzz.pool import BAD, SECONDS, Child
from tests.fuzz.programs import Input, Place, Program, Step, code, drawn
from tests.fuzz.runner import Tally, fuzz, shrunk, smallest, walled
from tests.fuzz.shrink import nearest
from tests.fuzz.ways import EAGER, WAYS, failure
from tests.support import promoted

pytestmark = [pytest.mark.fuzz, pytest.mark.filterwarnings("ignore")]

SHORT = {
    "graphs": 300,
    "files": 300,
    "isolated": 20,
    "ops": 120,
    "chains": 1200,
    "feeds": 400,
    "operators": 500,
    "values": 80,
    "states": 4,
}
"""How many of each kind a run of all tests tries."""
FEW = {
    "graphs": 10,
    "files": 6,
    "isolated": 1,
    "ops": 5,
    "chains": 60,
    "feeds": 6,
    "operators": 10,
    "values": 12,
    "states": 3,
}
"""How many `make test` tries."""
SEEDS = {
    "graphs": 1,
    "files": 1,
    "isolated": 1,
    "ops": 1,
    "chains": 1,
    "feeds": 1,
    "operators": 1,
    "values": 1,
    "states": 0,
}


def up_to(count: int) -> Callable[[int], bool]:
    return lambda tried: tried < count


def check_finds_nothing(kind: str, count: int) -> None:
    results: list[str] = []
    tally = fuzz(kind, SEEDS[kind], up_to(count), results.append)
    assert not tally.findings, "\n\n".join(tally.findings)
    assert sum(tally.tried.values()) == count
    assert json.loads(results[-1])["kind"] == kind


@pytest.mark.full
@pytest.mark.parametrize("kind", SHORT)
def test_fuzzing_finds_nothing_from_a_fixed_seed(kind: str) -> None:
    check_finds_nothing(kind, SHORT[kind])


@pytest.mark.parametrize("kind", FEW)
def test_fuzzing_few(kind: str) -> None:
    check_finds_nothing(kind, FEW[kind])


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    """A child that reads what it should read."""
    with Child() as child:
        yield child


# Numbers


PLANTED = Program(
    "max",
    (Input(DType.int32), Input(DType.int32, seed=4), Input(DType.float32)),
    (
        Step("promoted", "+", (Place(0), Place(1))),
        Step("move", "flip", (Place(3),)),
        Step("promoted", "max", (Place(4), Place(1)), "cond"),
        Step("promoted", "*", (Place(5), Place(0))),
    ),
    "pickled",
)


@pytest.mark.parametrize(
    ("trap", "chain"),
    [
        ("optimiser FuseReluClip", chains.Chain(DType.float64, "relu", "clip 6")),
        ("optimiser NoopElimination float64", chains.Chain(DType.float64, "add 1e-300", "rdiv 1")),
        ("optimiser NoopElimination float64", chains.Chain(DType.float64, "abs", "mul 1.0000000000009095", 4)),
    ],
)
def test_optimiser_that_is_wrong_is_found_when_nothing_is_done_about_it(trap: str, chain: chains.Chain) -> None:
    assert chains.failure(chain)[0] is None
    with switched_off(trap):
        assert chains.failure(chain)[0] is not None


def test_shape_of_parts_of_bytes_loads_when_optimisers_drop_the_ops_before_it() -> None:
    for dtype in (DType.int2, DType.uint4):
        for first in ("div 1", "mul 1", "add 0"):
            assert chains.failure(chains.Chain(dtype, first, "shape"))[0] is None


@pytest.mark.parametrize("last", ["unique", "flip"])
@pytest.mark.parametrize("between", ["sub 1e-300", "mul 1", "div 1", "add 0"])
def test_dequantised_int32_is_not_quantised_again_when_optimisers_drop_the_op_before_a_move(
    between: str, last: str
) -> None:
    assert chains.failure(chains.Chain(DType.int32, "scaled", between, None, last))[0] is None


def test_program_is_right_as_long_as_nothing_is_planted() -> None:
    assert failure(PLANTED) is None


def test_wrong_op_is_found_and_shrunk_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(promoted.OPS, "max", ops.minimum)
    why = failure(PLANTED)
    assert why is not None
    assert "max" in why
    test = shrunk(PLANTED, why)
    assert test.partition("Program(")[2].count("Step(") == 3  # the flip and the sum are what the extreme reads
    assert "'max'" in test
    assert "'cond'" not in test
    assert "'pickled'" not in test
    assert "assert failure(program) is None" in test


def test_wrong_op_is_found_by_fuzzing_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(promoted.OPS, "+", lambda x, y: x - y)
    results: list[str] = []
    tally = fuzz("graphs", 1, lambda tried: tried < 60 and not results, results.append)
    assert len(tally.findings) == 1
    namespace = {"Program": Program, "Input": Input, "Step": Step, "Place": Place, "DType": DType, "failure": failure}
    exec(results[0], namespace)
    with pytest.raises(AssertionError):
        namespace["test_found"]()  # type: ignore[operator]


def test_program_is_the_same_when_drawn_again_and_its_code_makes_it() -> None:
    for seed in range(20):
        program = drawn(seed, list(WAYS))
        assert program == drawn(seed, list(WAYS))
        results: dict[str, object] = {"DType": DType, "Input": Input, "Place": Place, "Program": Program, "Step": Step}
        text = code(program, "why").partition("program = ")[2].rpartition("    assert")[0]
        assert eval(text.strip(), results) == program


@pytest.mark.parametrize("subject", ["wide", "complex"])
def test_wrong_step_is_found_in_the_fewest_steps_when_it_is_planted(
    subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs: dict[str, Any] = values.PAIRS if subject == "wide" else values.BINARY
    monkeypatch.setitem(pairs, "*", (lambda x, y: x * y + x, pairs["*"][1]))
    number = next(n for n in range(200) if values.failure(subject, n)[0])
    steps = values.shrunk(subject, number)
    assert values.failure(subject, number, steps)[0]
    assert steps == 1 or values.failure(subject, number, steps - 1)[0] is None


@pytest.mark.parametrize("subject", values.SUBJECTS)
def test_subjects_are_right_as_long_as_nothing_is_planted(subject: str) -> None:
    counts = [values.failure(subject, number) for number in range(6)]
    assert all(why is None for why, _ in counts), counts
    assert sum(count for _, count in counts)


def test_tensors_are_compared_with_graphs_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure(replace(PLANTED, way=EAGER)) is None
    right = gc.Tensor.numpy
    monkeypatch.setattr(gc.Tensor, "numpy", lambda self: right(self)[::-1])
    why = failure(replace(PLANTED, way=EAGER))
    assert why is not None
    assert why.startswith("eager: ")


@pytest.mark.parametrize("dtype", [DType.int8, DType.float16, DType.bfloat16, DType.int4, DType.float8_e5m2], ids=str)
def test_values_are_all_of_a_narrow_dtype(dtype: DType) -> None:
    every = elements.values(dtype)
    assert len(every) == 1 << dtype.bits
    assert len(np.unique(every.astype(np.float32)[np.isfinite(every.astype(np.float32))])) > (1 << dtype.bits) * 0.8


def test_pairs_are_all_of_two_values_of_8_bits() -> None:
    x, y = elements.operands(elements.Element("add", DType.uint8))
    assert len(set(zip(x.ravel().tolist(), y.ravel().tolist(), strict=True))) == 65536


# Files


def test_deaths_hangs_and_memory_are_told_and_the_next_mutant_is_read_when_they_are_planted() -> None:
    with Child() as child:
        assert child.ask("planted", "dies", b"").startswith("died: -6")
        assert child.ask("planted", "runs", b"") == "ran"
        child.seconds = 0.2  # a child that has started takes none but those of the hang
        assert child.ask("planted", "hangs", b"") == "hung"
        child.seconds = SECONDS
        assert child.ask("planted", "grows", b"").startswith("raised MemoryError")
        assert child.ask("planted", "runs", b"") == "ran"
        assert child.deaths == 2


def test_crash_is_a_finding_and_fuzzing_goes_on_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = {("planted", "dies"): b"", ("planted", "runs"): b""}
    monkeypatch.setattr(mutations, "sources", lambda: planted)
    monkeypatch.setattr(mutations, "mutated", lambda source, number: b"mutant")
    tally = fuzz("files", 0, up_to(4), lambda text: None)
    assert tally.tried == {"planted: died": 2, "planted: ran": 2}
    assert len(tally.findings) == 1
    assert "died: -6" in tally.findings[0]


def test_bytes_are_as_near_to_the_seed_as_they_can_be_when_shrunk() -> None:
    seed, mutant = bytes(200), bytearray(200)
    for at in (3, 90, 150, 151):
        mutant[at] = 7
    small = nearest(seed, bytes(mutant), lambda content: content[150:151] == b"\x07")
    assert [i for i, byte in enumerate(small) if byte] == [150]
    assert nearest(b"abcdef", b"abXXcdYef", lambda content: b"Y" in content) == b"abcdYef"


def test_shrunk_bytes_are_saved_and_named_in_the_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.fuzz.runner.BUILD", tmp_path)
    monkeypatch.setattr(mutations, "sources", lambda: {("planted", "dies"): b""})
    with Child() as child:
        message = smallest(child, ("planted", "dies"), 5, b"much more", "died: -6")
    assert (tmp_path / "planted-5.bin").read_bytes() == b""
    assert "planted-5.bin" in message


def test_feeds_are_the_same_when_drawn_again_and_those_of_the_case_at_first(child: Child) -> None:
    for name in random.Random(1).sample(odd_feeds.names(), 40):
        (content, feeds), (again, fed) = odd_feeds.drawn(name, 7), odd_feeds.drawn(name, 7)
        assert content == again
        assert all(np.array_equal(feeds[key], fed[key], equal_nan=feeds[key].dtype.kind == "f") for key in feeds)
    for name in ("- Gather float32 0", "- STFT float64 0", "ai.onnx.ml FeatureVectorizer float32 0"):
        assert child.ask("feeds", name, b"0") == "ran", name
    assert child.ask("feeds", "- STFT float32 0", b"1786") == "RunError"  # no samples in a window
    assert child.deaths == 0


def _has_shape(shape: str, result: operators.Drawn) -> bool:
    """Return True if a drawn model is what its shape is about."""
    nodes, dims = result.model.graph.node, [d for i in result.model.graph.input for d in i.type.tensor_type.shape.dim]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in nodes[0].attribute} if nodes else {}
    arrays = [*result.feeds.values(), *map(onnx.numpy_helper.to_array, result.model.graph.initializer)]
    checks: dict[str, Callable[[], bool]] = {
        "empty": lambda: any(not array.size for array in arrays),
        "unnamed": lambda: any(not name or name == "surplus" for n in nodes for name in (*n.input[1:], *n.output)),
        "unknown": lambda: any(d.dim_value == -1 for d in dims),
        "windows": lambda: attributes["auto_pad"][:4] == b"SAME" and max(attributes["dilations"]) > 1,
        "transposed": lambda: nodes[0].op_type == nodes[-1].op_type == "Transpose" and len(nodes) > 2,
    }
    return checks[shape]()


@pytest.mark.parametrize("shape", operators.SHAPES)
def test_shapes_of_models_are_drawn_and_the_same_again(shape: str) -> None:
    results = [operators.drawn(shape, number) for number in range(40)]
    assert sum(_has_shape(shape, d) for d in results) > 12
    assert len({d.source.split()[1] for d in results}) > (4 if shape == "windows" else 20)
    assert results[3].model == operators.drawn(shape, 3).model


def test_models_have_empty_constants_and_older_opsets() -> None:
    results = [operators.drawn("empty", number).model for number in range(40)]
    assert any(not math.prod(t.dims) for model in results for t in model.graph.initializer)
    assert len({model.opset_import[0].version for model in results}) > 5


def _spoil(shape: str, model: onnx.ModelProto) -> None:
    """Read a model as code does that forgot a shape."""
    graph = model.graph
    if shape == "empty" and not all(math.prod(t.dims) for t in graph.initializer):
        raise ZeroDivisionError
    for node in graph.node:
        if shape == "unnamed" and "" in node.output:
            raise KeyError("")
        for attribute in node.attribute:
            if shape == "windows" and attribute.name == "dilations":
                attribute.ints[:] = [1] * len(attribute.ints)
            elif shape == "transposed" and attribute.name == "perm":
                attribute.ints[:] = sorted(attribute.ints)
    for item in graph.input:
        for dim in item.type.tensor_type.shape.dim:
            if shape == "unknown" and dim.dim_value == -1:
                dim.dim_value = 1


@pytest.mark.parametrize("shape", operators.SHAPES)
def test_fault_of_a_shape_is_found_when_it_is_planted(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = operators.WAYS["a session"]

    def wrong(session: gc.InferenceSession, content: bytes, feeds: Any) -> Any:
        model = onnx.ModelProto.FromString(content)
        _spoil(shape, model)
        return right(session, model.SerializeToString(), feeds)

    monkeypatch.setitem(operators.WAYS, "a session", wrong)
    number = next(n for n in range(60) if operators.outcome(shape, n).startswith("wrong: "))
    monkeypatch.undo()
    assert not operators.outcome(shape, number).startswith(BAD)


def test_wrong_windows_are_found_when_nothing_is_done_about_them() -> None:
    with switched_off("windows with dilations and auto_pad"):
        assert any(operators.outcome("windows", number).startswith(BAD) for number in range(20))


def test_mutants_are_walled() -> None:
    assert walled(sources()["model", "control"]) == "ran"
    assert walled(b"") == "ModelError"


@pytest.mark.parametrize("kind", ["gguf", "safetensors", "config", "cache"])
def test_seed_of_a_format_is_read_as_it_is(kind: str, child: Child) -> None:
    for (its, name), content in sources().items():
        if its == kind:
            assert child.ask(kind, name, content) == "ran", name


def test_mutant_is_the_same_when_made_again() -> None:
    for number, source in enumerate(sources()):
        assert mutated(source, number) == mutated(source, number)
    assert all(not outcome.startswith(BAD) for outcome in ("ran", "ModelError", "loaded"))


# States


_counting = cache(states.counting)


class Forgetful(states.Holding):
    """A machine that expects what is not so. The states of all examples are of one model."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        self.model = _counting()
        self.expected = {}

    @rule(state=states.Holding.states)
    def holds_nothing(self, state: Any) -> None:
        assert not state.buffers["total"].any(), "planted"


def test_wrong_state_is_found_with_its_steps_when_it_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(states.MACHINES, "planted", Forgetful)
    why = states.failure("planted", 2, examples=20)
    assert why is not None
    assert "planted" in why
    assert "holds_nothing" in why


def test_tally_is_a_line_of_json() -> None:
    tally = Tally("graphs", 3, next_seed=9)
    tally.tried.update(right=6)
    assert json.loads(tally.line())["outcomes"] == {"right": 6}


def test_program_that_does_not_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object) -> int:
        while True:
            pass

    monkeypatch.setattr(limit.limited.__wrapped__, "__defaults__", (0.2,))  # type: ignore[attr-defined]
    monkeypatch.setitem(values.SUBJECTS, "endless", endless)
    monkeypatch.setattr(ways, "_check", endless)
    message = "TimeoutError: it took more than 0.2 s of processor time"
    assert values.failure("endless", 0) == (message, 0)
    assert failure(Program("max", (), (), "")) == message
