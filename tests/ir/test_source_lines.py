"""The user's line where functions of NumPy, contextlib and the like stand between the user and the library."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcore import Graph, TensorType, ops
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol
from graphcore.support.source_lines import Line


def operands() -> tuple[Symbol, Symbol]:
    graph = Graph("g", {"x": TensorType("float32", [2]), "y": TensorType("float32", [3])})
    x, y = graph.inputs
    return x, y


def by_reduce(x: Symbol, y: Symbol) -> object:
    return functools.reduce(lambda a, b: a + b, [x, y])


def by_partial(x: Symbol, y: Symbol) -> object:
    return functools.partial(Symbol.__add__, x)(y)


def by_transpose(x: Any, y: Symbol) -> object:
    return np.transpose(x, (0, 1, 2))


def by_squeeze(x: Any, y: Symbol) -> object:
    return np.squeeze(x, 0)


def by_exit_stack(x: Symbol, y: Symbol) -> object:
    with contextlib.ExitStack() as stack:
        return stack.callback(x.__add__, y)


def by_dispatch(x: Symbol, y: Symbol) -> object:
    return functools.singledispatch(x.__add__)(y)


@pytest.mark.parametrize("mistake", [by_reduce, by_partial, by_transpose, by_squeeze, by_exit_stack, by_dispatch])
def test_error_names_the_users_line_when_another_package_called_the_op(
    mistake: Callable[[Symbol, Symbol], object],
) -> None:
    with pytest.raises(ShapeError) as raised:
        mistake(*operands())
    first = inspect.getsourcelines(mistake)[1]
    line = raised.value.line
    assert line is not None
    assert line.path == __file__
    assert first < line.number < first + 4


def test_error_names_the_line_of_the_context_manager_that_the_user_wrote() -> None:
    @contextlib.contextmanager
    def summed(x: Symbol, y: Symbol) -> Iterator[object]:
        yield x + y

    with pytest.raises(ShapeError) as raised, summed(*operands()):
        pass
    assert raised.value.line is not None
    assert raised.value.line.text == "yield x + y"


def test_node_has_the_users_line_when_numpy_made_it() -> None:
    x, _ = operands()
    row: Any = ops.unsqueeze(x, 0)
    result: Any = np.transpose(row, (1, 0))
    assert result.line.text.startswith("result: Any = np.transpose")


def test_line_is_of_the_caller_when_no_user_stands_outside() -> None:
    x, y = operands()
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(x.__add__, y).exception()
    assert isinstance(error, ShapeError)
    assert error.line is not None
    assert error.line.path.endswith("thread.py")


def test_long_lines_are_cut_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "generated.py"
    path.write_text(f"x = {'1 + ' * 1000}1\n")
    line = Line(str(path), 1)
    assert (len(line.text), len(line.excerpt), line.excerpt[-7:]) == (4005, 160, " + 1...")
    assert DTypeError("no", line=line).args[0] == f"no\n  at generated.py:1   {line.excerpt}"
