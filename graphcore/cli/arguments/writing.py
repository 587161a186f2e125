"""Arguments of the commands that write models."""

from __future__ import annotations

import argparse

from graphcore.cli.arguments.options import TARGETS, Commands, add_links, add_precision, command

_CONVERT = "Writes a model so that a plain onnxruntime of the target runs it, or as standard ONNX."

_QUANTIZE = "Writes a model whose matrix products read weights of few bits, and prints what became of each layer."
_QUANTIZE_HELP = """\
Patterns are of layers, results or weights, with * ? [...] as in the shell; * goes across layers.

examples:
  graphcore quantize model.onnx small.onnx --scheme int8_dynamic
  graphcore quantize model.onnx small.onnx --scheme int4 --exclude 'head*' --embeddings
"""


def add_convert(commands: Commands) -> None:
    parser = command(commands, "convert", _CONVERT, "example:\n  graphcore convert new.onnx plain.onnx --target cpu\n")
    parser.add_argument("source", metavar="IN", help="the .onnx file to read")
    parser.add_argument("path", metavar="OUT", help="the .onnx file to write")
    parser.add_argument("--target", choices=TARGETS, default="cpu", help="what it is to run on (cpu)")
    add_precision(parser)
    parser.add_argument(
        "--implicit-casts", action="store_true", help="cast operands of several dtypes as the promotion system says"
    )
    parser.add_argument(
        "--promotion", metavar="SYSTEM", help="the promotion system (the one that the model notes, or max)"
    )
    parser.add_argument("--opset", type=int, metavar="N", help="ONNX's opset of OUT (the oldest that will do)")
    parser.add_argument(
        "--ir-version", type=int, metavar="N", help="the version of the file format (the one that goes with the opset)"
    )
    parser.add_argument("--runtime", metavar="RELEASE", help="the onnxruntime that is to run it, such as 1.20")
    parser.add_argument("--external-data", action="store_true", help="put weights into a file beside it, OUT.data")
    add_links(parser)


def add_quantize(commands: Commands) -> None:
    parser = command(commands, "quantize", _QUANTIZE, _QUANTIZE_HELP)
    parser.add_argument("source", metavar="IN", help="the .onnx file to read")
    parser.add_argument("path", metavar="OUT", help="the .onnx file to write")
    parser.add_argument(
        "--scheme", default="int8_dynamic", metavar="NAME", help="int8_dynamic, int8, int4, q4_0, ... (int8_dynamic)"
    )
    parser.add_argument(
        "--include", action="append", default=[], metavar="PATTERN", help="only these layers; repeatable"
    )
    parser.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="not these; repeatable")
    parser.add_argument(
        "--embeddings",
        action=argparse.BooleanOptionalAction,
        help="also tables that rows are looked up in, to int8 (of decoders)",
    )
    parser.add_argument("--min-elements", type=int, default=1024, metavar="N", help="leave smaller weights (1024)")
    parser.add_argument("--block-size", type=int, metavar="N", help="of int4: 16, 32, 64, ... (32; of decoders to 128)")
    parser.add_argument(
        "--many-rows",
        choices=("int8", "same"),
        help="of 4 bits: multiply many rows as bytes, or as few rows are (int8 of decoders)",
    )
    parser.add_argument("--reduce-range", action="store_true", help="of int8: 7 bits, for x86 without VNNI")
    parser.add_argument("--accuracy-level", type=int, choices=(0, 4), help="0 is exact, 4 is faster (4)")
    parser.add_argument("--strict", action="store_true", help="fail where a chosen layer cannot be quantised")
    parser.add_argument("--target", choices=TARGETS, default="cpu", help="what it is to run on (cpu)")
    parser.add_argument("--report", metavar="FILE", help="write the rows of the report as JSON too")
    add_links(parser)
