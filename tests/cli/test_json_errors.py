"""Errors and warnings of commands: text on stderr without source lines, and with `--json` one document on stdout."""

from __future__ import annotations

import argparse
import json
import linecache
import pickle

import onnx
import onnx.parser
import pytest

from graphcore import Graph, TensorType
from graphcore.cli import main
from graphcore.cli.arguments import parser
from graphcore.cli.commands import promote
from graphcore.errors import ShapeError
from tests.cli.conftest import Call

ARGUMENTS = {
    "compare": ["gone.onnx"], "diff": ["gone.onnx", "gone.onnx"], "astype": ["gone.onnx", "o.onnx", "float16"],
    "conform": ["--suite", "array-api", "--array-api", "gone"], "convert": ["gone.onnx", "o.onnx"],
    "deploy": ["gone.onnx", "--kserve", "o.yaml"], "extract": ["gone.onnx", "o.onnx", "--outputs", "y"],
    "promote": ["float99", "int8"], "quantize": ["gone.onnx", "o.onnx"], "rename": ["gone.onnx", "o.onnx", "x=y"],
    "mixed-precision": ["gone.onnx", "o.onnx", "--samples", "x.npz", "--max-error", "1"],
    "run": ["gone.onnx", "--random"], "set-dims": ["gone.onnx", "o.onnx", "n=2"],
}  # fmt: skip
"""Arguments with which commands fail; `gone.onnx` for the others."""


def commands() -> list[str]:
    (choices,) = (a.choices for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    return [name for name in choices if name not in ("doctor", "completion")]


@pytest.mark.parametrize("command", commands())
def test_json_error_is_one_document(call: Call, command: str) -> None:
    status, out, err = call(command, *ARGUMENTS.get(command, ["gone.onnx"]), "--json")
    document = json.loads(out)
    assert [*document] == ["error", "summary", "operands", "help", "message"]
    assert document["error"].endswith("Error")
    assert document["summary"]
    assert document["help"]
    assert err.rstrip() == document["message"]
    assert status == (2 if command in ("diff", "check") else 1)
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("argv", "summary"),
    [
        (["inspect", "--json"], "the following arguments are required: MODEL"),
        (["promot", "--json"], "unknown command 'promot'; did you mean promote? `graphcore --help` lists the commands"),
        (
            ["inspect", "m.onnx", "--nods=1", "--json"],
            "unknown option --nods; did you mean --nodes? `graphcore inspect --help` lists the options",
        ),
        (["inspect", "m.onnx", "-q", "--json"], "unknown option -q; `graphcore inspect --help` lists the options"),
        (["inspect", "m.onnx", "n.onnx", "--json"], "unrecognized arguments: n.onnx"),
        (
            ["--versoin", "doctor", "--json"],
            "unknown option --versoin; did you mean --version? `graphcore --help` lists",
        ),
        (["bench", "m.onnx", "--json", "--threads", "0"], "argument --threads: '0' is not a list of integers of"),
    ],
)
def test_json_usage_error_has_the_usage(call: Call, argv: list[str], summary: str) -> None:
    status, out, err = call(*argv)
    document = json.loads(out)
    assert (status, document["error"]) == (2, "UsageError")
    assert document["summary"].startswith(summary)
    command = argv[0] if argv[0] in commands() else "[-h]"
    assert document["help"].startswith(f"usage: graphcore {command} ")
    assert err.rstrip() == document["message"]


@pytest.fixture
def mixed(call: Call) -> str:
    """A model with operands of two dtypes, in the folder of the test."""
    text = """<ir_version: 9, opset_import: ["" : 18]>
        m (int64[N] x, uint64[N] i) => (float16[N] y) { y = Add(x, i) }"""
    onnx.save(onnx.parser.parse_model(text), "m.onnx")
    return "m.onnx"


def test_json_error_lists_operands(call: Call, mixed: str) -> None:
    document = json.loads(call("convert", mixed, "o.onnx", "--json")[1])
    assert document["operands"] == [
        {"role": "A", "name": "x", "type": "int64[N]", "line": ""},
        {"role": "B", "name": "i", "type": "uint64[N]", "line": ""},
    ]
    assert document["help"] == "Graph.load(..., implicit_casts=True) inserts casts by the promotion system"


def test_warning_has_no_source_line(mixed: str, capsys: pytest.CaptureFixture[str]) -> None:
    # As in the console script, whose line is not code of the user.
    linecache.cache["console.py"] = (1, None, ["sys.exit(main())\n"], "console.py")
    code = compile("main(['convert', path, 'o.onnx', '--implicit-casts'])\n", "console.py", "exec")
    exec(code, {"main": main, "path": mixed})
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith("LossyCastWarning: Add 'y': the implicit cast of A from int64 to float16")
    assert warning.endswith("such as .cast(DType.float64)")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (MemoryError(), 1, ("MemoryError", "out of memory", "")),
        (KeyError("k"), 1, ("KeyError", "internal error, KeyError: 'k'", "please report it")),
    ],
)
def test_json_has_internal_errors(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, words: tuple[str, ...]
) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(promote, "promote", fail)
    result, out, _ = call("promote", "int8", "int8", "--json")
    document = json.loads(out)
    assert result == status
    assert (document["error"], document["summary"], document["help"]) == words


def test_operands_of_an_error_are_attributes() -> None:
    graph = Graph("g", {"x": TensorType("float32", ["n", 3])})
    with pytest.raises(ShapeError) as raised:
        graph["x"] @ graph["x"]
    (role, name, type_, line), *_ = raised.value.operands
    assert (role, name, type_) == ("lhs", "x", "float32[n, 3]")
    assert line.startswith("test_json_errors.py:")
    assert pickle.loads(pickle.dumps(raised.value)).operands == raised.value.operands
