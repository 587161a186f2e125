"""Names of models are untrusted: no command prints what moves the cursor, or begins a line of its own."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphcore.cli import output
from graphcore.support import escaping
from tests.cli.conftest import Call
from tests.support.onnx_models import model, value

EVIL = "\x1b]0;owned\x07\r\u202e\nerror: [bold]x[/bold] "
DISPLAYED = escaping.escaped(EVIL).strip()


def write(path: str, scale: float = 1.0) -> None:
    """Write two products with hostile names: of the input, weights, values, output, dim and producer."""
    w = numpy_helper.from_array(np.eye(64, dtype=np.float32) * scale, f"w{EVIL}")
    nodes = [
        helper.make_node("MatMul", [f"x{EVIL}", f"w{EVIL}"], [f"h{EVIL}"], name=f"node{EVIL}"),
        helper.make_node("MatMul", [f"h{EVIL}", f"w{EVIL}"], [f"y{EVIL}"]),
    ]
    ends = [[value(f"{name}{EVIL}", TensorProto.FLOAT, [f"d{EVIL}", 64])] for name in "xy"]
    proto = model(nodes, ends[0], ends[1], [w])
    proto.producer_name = EVIL
    proto.graph.name = f"g{EVIL}"
    Path(path).write_bytes(proto.SerializeToString())


COMMANDS: dict[str, tuple[list[str], set[int]]] = {
    "inspect": (["inspect", "m.onnx", "--nodes", "--weights"], {0}),
    "run": (["run", "m.onnx", "--random"], {0}),
    "run that fails": (["run", "m.onnx"], {1}),
    "bench": (["bench", "m.onnx", "--seconds", "0.01", "--no-memory", "--plot", "p.svg"], {0}),
    "compare": (["compare", "m.onnx", "--seconds", "0.01", "--provider", "cpu", "--scheme", "int8"], {0}),
    "diff": (["diff", "m.onnx", "n.onnx"], {1}),
    "diff with numbers": (["diff", "m.onnx", "n.onnx", "--run"], {1}),
    "check": (["check", "m.onnx"], {0}),
    "convert": (["convert", "m.onnx", "o.onnx"], {0}),
    "quantize": (["quantize", "m.onnx", "o.onnx", "--scheme", "int8"], {0, 1}),
    "extract": (["extract", "m.onnx", "o.onnx", "--outputs", f"h{EVIL}"], {0, 1}),
    "rename": (["rename", "m.onnx", "o.onnx", f"x{EVIL}=x"], {0}),
    "astype": (["astype", "m.onnx", "o.onnx", "float16", "--keep", "*nothing*"], {1}),
    "set-dims": (["set-dims", "m.onnx", "o.onnx", "batch=1"], {1}),
}


@pytest.mark.parametrize(("argv", "statuses"), COMMANDS.values(), ids=COMMANDS)
def test_no_command_prints_control_characters(call: Call, argv: list[str], statuses: set[int]) -> None:
    call("promote", "int8", "int8")
    write("m.onnx")
    write("n.onnx", 2.0)
    status, out, err = call(*argv)
    assert status in statuses, err
    assert "internal error" not in err
    for character in out + err:
        assert character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
    if status == 0:
        assert not [line for line in out.split("\n") if line.lstrip().startswith("error: ")]


def test_escaping_a_record_leaves_what_is_not_a_text() -> None:
    from graphcore.surgery.diff.records import Diff, NodeChange, WeightChange

    node = NodeChange("~", EVIL, "Relu", EVIL, (EVIL, "plain"))
    result = output.escaped_record(Diff(nodes=(node,), weights=(WeightChange("~", EVIL, "b", "", "", 3, 2, 1.5),)))
    assert result.nodes[0].details == (escaping.escaped(EVIL), "plain")
    assert (result.weights[0].size, result.weights[0].largest) == (3, 1.5)
    assert "\x1b" not in str(result)


def test_bars_take_names_for_text(call: Callable[..., object]) -> None:
    assert escaping.escaped("[bold]x[/bold]") == "[bold]x[/bold]"
    assert DISPLAYED.startswith("\\x1b]0;owned\\x07\\r\\u202e\\nerror: ")
