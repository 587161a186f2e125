"""The arguments of the commands, apart from their code: help and usage errors import neither NumPy nor onnxruntime."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from graphcore._version import __version__
from graphcore.cli.arguments import options, reading
from graphcore.support.escaping import suggestion

_EXAMPLES = """examples:
  graphcore inspect model.onnx
  graphcore run model.onnx --random --dim batch=4
  graphcore run model.onnx --input tokens=tokens.npy --input gain=gain.npy --output results.npz
  graphcore check model.onnx
  graphcore bench model.onnx --threads 1,2 --batch 1,8
  graphcore compare model.onnx --scheme int8_dynamic --dtype float16
  graphcore diff model.onnx other.onnx --run
  graphcore view model.onnx -o page.html
  graphcore convert model.onnx lowered.onnx --target cpu
  graphcore quantize model.onnx small.onnx --scheme int8_dynamic
  graphcore mixed-precision model.onnx mixed.onnx --samples data.npz --max-error 1e-3
  graphcore extract model.onnx head.onnx --inputs features --outputs scores
  graphcore set-dims model.onnx fixed.onnx batch=1
  graphcore deploy model.onnx --triton repository/
  graphcore serve model.onnx --port 8000
  graphcore promote int8 uint64
  graphcore doctor
  graphcore conform --runtime 1.27.0
"""


class UsageError(SystemExit):
    """Wrong arguments. usage: the arguments of the command, as text."""

    def __init__(self, summary: str, command: str, usage: str) -> None:
        super().__init__(2)
        self.summary = summary
        self.command = command
        self.usage = usage


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"argument COMMAND: invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if unknown is not None:
            hint = suggestion(unknown[1], re.findall(r"[\w-]+", unknown[2]))
            message = f"unknown command {unknown[1]!r}; {hint}`graphcore --help` lists the commands"
        raise UsageError(message, self.prog, self.format_usage())

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments here: argparse would report those of a command with the usage of the root."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            option = next((text.partition("=")[0] for text in unknown if text.startswith("-")), None)
            if option is None:
                self.error(f"unrecognized arguments: {' '.join(unknown)}")
            hint = suggestion(option, self._option_string_actions)
            self.error(f"unknown option {option:.80}; {hint}`{self.prog} --help` lists the options")
        return parsed, unknown


_COMMANDS = (
    reading.add_inspect,
    reading.add_view,
    reading.add_run,
    reading.add_bench,
    reading.add_compare,
    reading.add_diff,
    reading.add_check,
    reading.add_decompile,
    options.add_convert,
    options.add_quantize,
    options.add_mixed_precision,
    options.add_extract,
    options.add_rename,
    options.add_set_dims,
    options.add_astype,
    options.add_deploy,
    options.add_serve,
    reading.add_promote,
    reading.add_doctor,
    reading.add_conform,
    reading.add_completion,
)
"""In the order of the help."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line.

    In its result `command` names a function of the module `home` in `cli/commands`.
    """
    root = _Parser(
        prog="graphcore",
        description="Inspects ONNX models, runs them with exact numbers, measures and compares them, reports what\n"
        "onnxruntime alone does differently, and rewrites them: lowers, quantises, cuts, renames, changes dtypes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    root.add_argument("--version", action="version", version=f"graphcore {__version__}")
    kind: type[argparse.ArgumentParser] = _Parser
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=kind)
    for add in _COMMANDS:
        add(commands)
    return root
