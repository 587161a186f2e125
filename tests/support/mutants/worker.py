"""The process that loads and runs mutants: `python -m tests.support.mutants.worker MEGABYTES`.

Reads a line "seed number" for each and answers with a line "seed number outcome". It may die of one: then the one who
asked knows of which.
"""

from __future__ import annotations

import resource
import sys
import warnings
from typing import Any

import numpy as np

import graphcore as gc
from graphcore.errors import GraphcoreError
from graphcore.runtime import Model
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType
from tests.support.mutants.mutate import mutant
from tests.support.mutants.seeds import seeds

SMALL = 1 << 16
"""Elements of the largest input that is fed."""
LONGEST = 5.0
"""Seconds of a run, after which it is stopped between two kernels: of a loop that is told to turn 2^32 times."""


def main() -> None:
    warnings.simplefilter("ignore")
    known = seeds()
    megabytes = int(sys.argv[1])
    if megabytes:
        limit = _mapped() + (megabytes << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        name, number = line.split()
        print(name, number, outcome(mutant(known[name], int(number))), flush=True)


def _mapped() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def outcome(content: bytes) -> str:
    """Return the outcome of a mutant: "ran", the name of a GraphcoreError, or "raised" and an unexpected error."""
    try:
        session = gc.InferenceSession(intra_op_num_threads=1, inter_op_num_threads=1)
        model = session.load(content)
        try:
            feeds = fed(model)
        except MemoryError:  # which the model itself took
            feeds = None
        if feeds is None:
            return "loaded"
        model.execute(feeds, timeout=LONGEST)
    except GraphcoreError as error:
        return type(error).__name__
    except BaseException as error:  # whatever it is, it should not have been
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"raised {type(error).__name__} in {where.name} of {where.filename.rpartition('/')[2]}:{where.lineno}"
    return "ran"


def fed(model: Model) -> dict[str, np.ndarray[Any, Any]] | None:
    """Ones for every input; None where one is not small."""
    made = {}
    for name, type_ in model.inputs.items():
        if not isinstance(type_, TensorType):
            return None
        dims = [int(d) if d.is_static else 2 for d in type_.shape]
        if len(dims) > 32 or np.prod(np.array(dims, float)) > SMALL:
            return None
        if type_.dtype is DType.string:
            made[name] = np.full(dims, "a", object)
        else:
            made[name] = np.ones(dims, np.float32).astype(type_.dtype.numpy)
    return made


if __name__ == "__main__":
    main()
