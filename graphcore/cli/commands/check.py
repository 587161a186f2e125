"""`graphcore check`: the changes that a model needs so that onnxruntime runs it with exact numbers."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from graphcore.cli import output
from graphcore.cli.arguments.options import links, sandbox_limits
from graphcore.runtime.isolation import failures, process
from graphcore.support.lazy import Lazy

if TYPE_CHECKING:
    from graphcore.cli import examining
else:  # a worker imports it in place of this process
    examining = Lazy("graphcore.cli.examining")


def check(args: argparse.Namespace) -> int:
    """Print the changes to a model. Returns 0 if onnxruntime alone gives the same numbers, else 1.

    With --strict it returns 0 only if no node is changed, replaced or added.
    """
    is_isolated = args.provider == "cpu" and os.name == "posix" if args.isolated is None else args.isolated
    arguments = (args.provider, dict(args.limit), args.strict, args.target, args.runtime)
    is_file = args.target is not None or args.runtime is not None
    with output.working(f"reading {args.model}"):
        if is_isolated:  # this process does not read the file: a crash or an endless loop becomes an error
            process.require_host([args.provider])
            limits = failures.WorkerLimits(**sandbox_limits())
            function = ("graphcore.cli.examining", "examine")
            answer = _checked(process.call(function, args.model, arguments, links(args), limits), args.model)
        else:
            answer = examining.examine(args.model, links(args), *arguments)
    lines, status = answer.pop("lines"), answer["status"]
    if args.json:
        output.document({"model": args.model} | answer)
        return int(status)
    for line in lines:
        output.line(line)
    needs_graph = answer["needs_graph"]
    if not is_file:
        rest = ", but for nodes that are lowered alone" if answer["changed"] else ""
        output.line(f"loads as it is{rest}" if needs_graph is None else f"loads through a Graph: {needs_graph}")
    output.line(
        f"{args.model}: runs on {answer['provider']}; "
        f"{answer['changed']} of {answer['nodes']} nodes are computed otherwise"
    )
    return int(status)


def _checked(answer: Any, model: str) -> dict[str, Any]:
    """Return the answer of a worker, which a hostile model may have taken over, if it has the expected form."""
    expected = {"status": int, "lines": list, "provider": str, "changed": int, "nodes": int}
    if not isinstance(answer, dict) or not all(type(answer.get(key)) is kind for key, kind in expected.items()):
        raise failures.malformed_answer(model, "load", "no report")
    return answer | {"lines": [*map(str, answer["lines"])], "needs_graph": answer.get("needs_graph")}
