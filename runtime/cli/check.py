"""`graphcore check`: what onnxruntime alone would refuse or compute differently, and what lowering does about it."""

from __future__ import annotations

import argparse

import onnx

from graphcore import runtime
from graphcore.arrays.external_data import model_bytes
from graphcore.ir.graph import Graph
from graphcore.onnx.opset import IR_VERSION, OPSET
from graphcore.onnx.proto.split_weights import split
from graphcore.runtime.cli.options import Commands, add_provider, command
from graphcore.runtime.lowering.report import lowered_by, notes

_SUMMARY = "Says what onnxruntime alone would refuse or compute differently, and what is done about it, a line each."
_EPILOG = """The exit status is 0 where the model runs.

example:
  graphcore check model.onnx --provider cpu
"""


def add(commands: Commands) -> None:
    parser = command(commands, "check", _SUMMARY, _EPILOG)
    parser.add_argument("model", metavar="MODEL", help="the .onnx file")
    add_provider(parser)
    parser.set_defaults(function=check)


def check(args: argparse.Namespace) -> int:
    from graphcore.runtime.ort import release  # onnxruntime, which other commands do not need

    session = runtime.InferenceSession(args.provider)
    graph = Graph.load(args.model)
    made = notes(graph, session.target, release.runtime())
    for line in _stamps(args.model):
        print(line)
    for note in made:
        print(note)
    passes = lowered_by(graph, session.target, release.runtime(), session.optimize)
    if passes:
        print("passes:")
    for step in passes:
        print(f"  {step.name}: {step.why}")
    session.load(graph)
    changed = sum(len(note.names) for note in made if note.reason != "a custom operator")
    count = len(graph.nodes)
    print(f"{args.model}: runs on {session.providers[0]}; {changed} of {count} nodes are computed otherwise")
    return 0


def _stamps(path: str) -> list[str]:
    """Return a line for each version that a file is stamped with and that is newer than what is written."""
    head, _ = split(model_bytes(path))
    model = onnx.ModelProto.FromString(head)
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    found = [f"opset {v}: converted to {OPSET}" for v in versions if v > OPSET]
    if model.ir_version > IR_VERSION:
        found.append(f"IR version {model.ir_version}: written anew as {IR_VERSION}")
    return found
