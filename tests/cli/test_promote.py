"""`graphcore promote` and `promotion.explain`: each system's result for two dtypes, and the reason."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphcore import DType, Graph, PromotionSystem, TensorType, implicit_cast_type
from graphcore.cli import main
from graphcore.errors import DTypeError, PromotionError
from graphcore.promotion import NAMES, LatticeSystem, explain, system
from graphcore.promotion.anvil import Anvil, common_dtype
from graphcore.promotion.max import LATTICE

Call = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[2]
SYSTEMS: list[PromotionSystem] = [
    *map(system, NAMES),
    system("max", complex=True),
    system("array_api", profile="seed"),
    system("allo_hls", revision="latest"),
    system("allo_cpp", revision="latest"),
]
DTYPES = [
    DType.of(name)
    for name in (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 index address float16 bfloat16 float32 tensor_float32 "
        "float64 float8_e4m3fn float8_e5m2 int4 int23 uint17 string complex64 complex128"
    ).split()
]
PAIRS = list(itertools.product(DTYPES, repeat=2))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command: status, stdout, stderr."""

    def run(*argv: str) -> tuple[int, str, str]:
        status = main(argv)
        out, err = capsys.readouterr()
        return status, out, err

    return run


# The command


def test_promote_prints_every_system_when_none_is_named(call: Call) -> None:
    assert call("promote", "int8", "uint64") == (
        0,
        "system         int8 uint64  why\n"
        "max            float16      int8 < int16 < int32 < int64 < float16 > uint64\n"
        "max_published  float16      printed in row int8, column uint64\n"
        "kernel_float   -            forbidden: signed with unsigned\n"
        "anvil          int64        signed with unsigned: signed, twice as wide as the unsigned one, at most 64 bits\n"
        "array_api      -            undefined: no table has int8 with uint64\n"
        "explicit       -            int8 with uint64 needs an explicit cast\n"
        "allo_hls       uint64       signed with unsigned: the unsigned one, which is at least as wide; "
        "+ and - give int66, * gives int72\n"
        "allo_cpp       uint64       signed with unsigned: the unsigned one, which is at least as wide\n"
        "numpy          float64      signed with uint64: no integer holds both, hence float64\n"
        "jax            float64?     int8 < int16 < int32 < int64 < float64? > uint64\n"
        "torch          -            Promotion for uint16, uint32, uint64 types is not supported in PyTorch: "
        "int8 and uint64\n",
        "",
    )


def test_promote_prints_one_system_when_it_is_named(call: Call) -> None:
    assert call("promote", "int32?", "int16", "--system", "anvil")[1] == (
        "system  int32? int16  why\nanvil   int16         an ambiguous dtype with a known one: the known one\n"
    )
    status, out, _ = call("promote", "bool", "index", "--system", "max", "--system", "max_published")
    assert status == 0
    assert out.splitlines()[1:] == [
        "max            uint64      bool < uint8 < uint16 < uint32 < uint64 > index",
        "max_published  int64       printed in row bool, column index; on the lattice they meet in uint64",
    ]


def test_promote_prints_the_extension_of_max_where_dtypes_are_complex(call: Call) -> None:
    assert call("promote", "complex64", "float64") == (
        0,
        "system             complex64 float64  why\n"
        "max                -                  max has no complex64\n"
        "max(complex=True)  complex128         complex64 < complex128 > float64\n"
        "max_published      -                  max_published has no complex64\n"
        "kernel_float       -                  kernel_float has no complex64\n"
        "anvil              -                  anvil has no complex64\n"
        "array_api          complex128         table of floats and complex numbers\n"
        "explicit           -                  complex64 with float64 needs an explicit cast\n"
        "allo_hls           -                  allo_hls has no complex64\n"
        "allo_cpp           -                  allo_cpp has no complex64\n"
        "numpy              complex128         a number with a complex one: the narrowest complex dtype whose parts "
        "hold both, complex128 at most\n"
        "jax                complex128         complex64 < complex128 > float64\n"
        "torch              complex128         categories bool < integer < float < complex: the higher, with parts "
        "that hold float64\n",
        "",
    )
    results = json.loads(call("promote", "int8", "complex128", "--system", "max", "--json")[1])["systems"]
    assert [(row["system"], row["result"], row["kind"]) for row in results] == [
        ("max", "-", "unknown"),
        ("max(complex=True)", "complex128", "common"),
    ]
    assert call("promote", "complex64?", "int8", "--system", "jax")[1].splitlines()[1].split()[:2] == [
        "jax",
        "complex128?",
    ]


def test_promote_knows_float8_and_odd_widths(call: Call) -> None:
    assert call("promote", "float8", "int8", "--system", "kernel_float")[1].splitlines() == [
        "system        float8_e4m3fn int8  why",
        "kernel_float  float8_e4m3fn       a float with an integer: the float",
    ]
    assert call("promote", "int23", "uint17", "--system", "allo_hls")[1].splitlines()[1] == (
        "allo_hls  int23         signed with unsigned: the signed one, which is wider; + and - give int24, "
        "* gives int40"
    )
    assert call("promote", "float8", "int23")[0] == 0


def test_promote_suggests_a_dtype_for_a_width_that_only_allo_has(call: Call) -> None:
    status, out, err = call("promote", "uint46", "int8")
    assert (status, out.splitlines()[0]) == (0, "system         uint46 int8  why")
    assert "promote: uint46 is a dtype of allo_hls and allo_cpp only; did you mean uint4 or uint64?\n" in err
    assert call("promote", "uint46", "int8", "--system", "allo_cpp")[2] == ""


@pytest.mark.parametrize(
    ("argv", "summary", "help"),
    [
        (
            "uint46 int8 --system max",
            "uint46 is not a dtype of max",
            "did you mean uint64 or uint16? systems that have it",
        ),
        (
            "int8 uint46 --system max --system jax",
            "uint46 is not a dtype of max or jax",
            "did you mean uint4 or uint64?",
        ),
        ("uint46? int8 --system anvil", "uint46 is not a dtype of anvil", "systems that have it: allo_hls, allo_cpp"),
        ("string string", "string is not a dtype of any system", "it combines only with itself"),
    ],
)
def test_promote_refuses_a_dtype_that_no_system_has(call: Call, argv: str, summary: str, help: str) -> None:
    status, out, err = call("promote", *argv.split())
    assert (status, out) == (1, "")
    assert err.startswith(f"DTypeError: promote: {summary}\n")
    assert help in err


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (("float99", "int8"), 1, "DTypeError: no dtype is called 'float99'"),
        (("int8", "float99?"), 1, "DTypeError: no dtype is called 'float99?'"),
        (("int8", "int0"), 1, "DTypeError: no dtype is called 'int0'"),
        (("int8", "int" + "9" * 5000), 1, "DTypeError: no dtype is called 'int999"),
        (("int8", ""), 1, "DTypeError: no dtype is called ''"),
        (("int8", "int8", "--system", "numpi"), 1, "PromotionError: no promotion system is called 'numpi'"),
        (("int8",), 2, "usage: graphcore promote"),
        (("int8", "int8", "int8"), 2, "usage: graphcore"),
        (("int8", "int8", "--sys", "max"), 2, "usage: graphcore"),
    ],
)
def test_promote_says_what_is_wrong_when_used_wrongly(
    call: Call, argv: tuple[str, ...], status: int, message: str
) -> None:
    got, out, err = call("promote", *argv)
    assert (got, out) == (status, "")
    assert err.startswith(message)
    assert "Traceback" not in err


def test_promote_prints_json(call: Call) -> None:
    status, out, _ = call("promote", "int8", "uint64", "--system", "anvil", "--system", "kernel_float", "--json")
    assert status == 0
    data = json.loads(out)
    assert (data["lhs"], data["rhs"]) == ("int8", "uint64")
    assert [(each["system"], each["result"], each["kind"]) for each in data["systems"]] == [
        ("anvil", "int64", "common"),
        ("kernel_float", "-", "forbidden"),
    ]


def test_promote_needs_no_onnxruntime() -> None:
    code = (
        "import sys; sys.modules['onnxruntime'] = None; from graphcore.cli import main; "
        "sys.exit(main(['promote', 'int8', 'uint8', '--system', 'max']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "system  int8 uint8  why\nmax     int16       int8 < int16 > uint8\n",
        "",
    )


# What explain says


@pytest.mark.parametrize("rules", SYSTEMS, ids=str)
def test_explain_agrees_with_implicit_cast_type_over_all_pairs(rules: PromotionSystem) -> None:
    for lhs, rhs in PAIRS:
        message = explain(lhs, rhs, rules)
        assert message.system == str(rules)
        assert message.reason
        if message.dtype is not None:
            assert implicit_cast_type(lhs, rhs, rules) is message.dtype
            # In jax int64 and uint64 meet in a weak float.
            assert message.ambiguous is (
                str(rules) == "jax" and message.dtype.is_float and lhs.is_integer and rhs.is_integer
            )
            assert (message.kind, message.result.rstrip("?")) == ("common", message.dtype.name)
            continue
        assert message.result == "-"
        with pytest.raises(PromotionError) as raised:
            implicit_cast_type(lhs, rhs, rules)
        refusal = raised.value.summary
        assert (message.kind == "forbidden") is ("forbidden" in refusal)
        assert (message.kind == "undefined") is ("undefined" in refusal)
        words = ("No ", "no ", "not supported", "explicit cast")
        assert message.kind != "no rule" or any(part in refusal for part in words)


def test_explain_counts_refusals_by_kind() -> None:
    def count(name: str) -> dict[str, int]:
        kinds = [explain(lhs, rhs, name).kind for lhs, rhs in PAIRS]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}

    assert count("max") == {"common": 16 * 16, "unknown": 576 - 256}
    assert count("kernel_float") == {"common": 15 * 15 - 34, "forbidden": 32, "no rule": 2, "unknown": 576 - 225}
    assert count("anvil") == {"common": 121, "unknown": 576 - 121}
    assert set(count("array_api")) == {"common", "undefined"}
    # index meets integers and bool, and none of the four floats.
    assert count("allo_cpp")["no rule"] == 8


def test_explain_shows_a_path_of_edges_on_the_lattice() -> None:
    for lhs, rhs in itertools.product(LATTICE, repeat=2):
        message = explain(lhs, rhs)
        if lhs is rhs:
            assert message.reason == "the same dtype"
            continue
        steps = re.split(" ([<>]) ", message.reason)
        names, signs = [DType.of(n) for n in steps[::2]], steps[1::2]
        assert (names[0], names[-1]) == (lhs, rhs)
        assert signs == sorted(signs), "up, then down"
        assert names[signs.count("<")] is message.dtype
        for here, sign, there in zip(names, signs, names[1:], strict=False):
            below, above = (here, there) if sign == "<" else (there, here)
            assert above in LATTICE[below], message.reason


def test_explain_follows_the_edges_of_ones_own_system() -> None:
    own = LatticeSystem("own", {DType.int8: [DType.int32], DType.uint8: [DType.int32], DType.int32: [DType.float64]})
    assert explain("int8", "uint8", own).reason == "int8 < int32 > uint8"
    assert explain("float64", "uint8", own).reason == "float64 > int32 > uint8"
    assert explain("bool", "uint8", own).kind == "unknown"
    split = LatticeSystem("split", {DType.int8: [DType.int16], DType.uint8: [DType.uint16]})
    refused = explain("int16", "uint16", split)
    assert (refused.kind, refused.reason) == ("no rule", "int16 and uint16 have no common dtype in split")


class First(PromotionSystem):
    name = "first"
    dtypes = frozenset({DType.int8, DType.int16})

    def common(self, lhs: DType, rhs: DType) -> DType:
        return lhs


def test_explain_names_the_system_when_it_knows_no_reason() -> None:
    assert explain("int8", "int16", First()).reason == "as first says"
    assert explain("int8", "int8", First()).reason == "the same dtype"


def test_explain_gives_the_flags_of_anvil() -> None:
    eleven = sorted(Anvil.dtypes, key=str)
    for (lhs, left), (rhs, right) in itertools.product(itertools.product(eleven, (False, True)), repeat=2):
        message = explain(lhs.name + "?" * left, rhs.name + "?" * right, "anvil")
        assert (message.dtype, message.ambiguous) == common_dtype(lhs, rhs, left, right)
    message = explain("float32?", "int8", "anvil")
    assert (message.result, message.reason) == (
        "float32?",
        "an ambiguous float with a known integer or bool: the float",
    )
    assert explain("int32?", "bool", "anvil").reason == "an ambiguous number with a known bool: the number"
    assert explain("int32?", "int8?", "anvil").reason == (
        "the same sign: the wider; both are ambiguous, and so is the result"
    )


def test_explain_gives_constants_of_kernel_float() -> None:
    message = explain("float64?", "int8", "kernel_float")
    assert (message.result, message.reason) == ("int8", "a constant takes the dtype of what it meets")
    assert explain("float64?", "int8?", "kernel_float").result == "float64?"


def test_explain_refuses_a_default_where_the_system_knows_none() -> None:
    message = explain("int32?", "int8", "max")
    assert (message.dtype, message.kind, message.reason) == (
        None,
        "unknown",
        "max has no dtypes that are only a default",
    )


def test_explain_gives_the_growth_of_hls() -> None:
    integers = [d for d in DTYPES if (d.is_integer or d is DType.bool) and d not in (DType.index, DType.address)]
    for rules in (system("allo_hls"), system("allo_hls", revision="latest")):
        graph = Graph("all", {d.name: TensorType(d, ["n"]) for d in integers}, promotion=rules)
        for lhs, rhs in itertools.product(integers, repeat=2):
            x, y = graph[lhs.name], graph[rhs.name]
            message = explain(lhs, rhs, rules).reason
            added, subtracted, product = (item.dtype.name for item in (x + y, x - y, x * y))
            sums = f"+ and - give {added}" if added == subtracted else f"+ gives {added}, - gives {subtracted}"
            assert message.endswith(f"; {sums}, * gives {product}")


def test_explain_says_where_hls_stops_growing() -> None:
    assert explain("int65536", "int8", "allo_hls").reason == (
        "the same sign: the wider; the result would have 65537 bits; integers have 65536 bits at most"
    )


def test_explain_raises_for_what_is_not_a_dtype_and_no_system() -> None:
    with pytest.raises(DTypeError, match="no dtype is called 'float7'"):
        explain("float7", "int8")
    with pytest.raises(PromotionError, match="no promotion system is called 'numpi'"):
        explain("int8", "int8", "numpi")


def test_promote_reads_the_spelling_of_one_system_and_the_common_one_of_many(call: Call) -> None:
    def answers(*argv: str) -> dict[str, str]:
        results = json.loads(call("promote", *argv, "--json")[1])["systems"]
        return {row["system"]: row["result"] for row in results}

    assert answers("i8", "i8") == {**dict.fromkeys(NAMES, "int8")}
    assert answers("i8", "i8", "--system", "array_api") == {"array_api": "int64"}
    assert answers("i1", "i32?", "--system", "anvil") == {"anvil": "int32?"}
    assert answers("u1", "apint(23, signed=True)", "--system", "allo_cpp") == {"allo_cpp": "int23"}
    assert call("promote", "i1", "i8")[0] != 0, "which is a byte to some and a bit to others"
