"""A worker of a batch job: an actor of Ray Data that loads the model once and runs tables."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow
import ray

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, GraphcoreError, ModelError
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.scale.batch.arrow_types import column_of, field, value_type
from graphcore.scale.carriers import carried, carrier, restored
from graphcore.scale.placing import Placed
from graphcore.scale.recipes import Recipe
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

OnError: TypeAlias = Literal["raise", "drop", "column"]

_LOG = logging.getLogger("graphcore.scale")


@dataclass(frozen=True, slots=True)
class Job:
    """The work of each worker.

    inputs, outputs: the column and the type of a row of each. keep: whether the other columns stay. error_column: of
    the text of an error, with on_error="column". rows: of one run of the model, None for the quickest number.
    """

    placed: Placed
    recipe: Recipe | None
    inputs: Mapping[str, tuple[str, TensorType]]
    outputs: Mapping[str, tuple[str, TensorType]]
    on_error: OnError
    error_column: str
    keep: bool
    threads: int
    shared: bool
    providers: str | None
    rows: int | None
    pad: Any
    padding: float
    dim: str | Mapping[str, int] | None

    def load(self) -> Model:
        """Return the model of the file on this node."""
        # Threads that spin would take the processors from the other workers.
        session = InferenceSession(
            self.providers, config={"session.intra_op.allow_spinning": False}, intra_op_num_threads=self.threads
        )
        return session.load(self.placed.path(), prepack="off" if self.shared else "auto")

    def start(self, model: Model) -> Run:
        """Return what runs rows."""
        if self.recipe is not None:
            return partial(self.recipe.run, model)
        return runner(model, self.rows, self.pad, self.padding, self.dim)


def outcomes_of(job: Job, run: Run, table: pyarrow.Table) -> list[Outcome]:
    """Return the outputs of each row of a table, or why it has none."""
    columns = {name: arrays_of(table.column(c), type_, c) for name, (c, type_) in job.inputs.items()}
    made: list[Outcome] = [[]] * table.num_rows
    rows: list[dict[str, Array]] = []
    places: list[int] = []
    for place in range(table.num_rows):
        row = {name: values[place] for name, values in columns.items()}
        failed = [value for value in row.values() if isinstance(value, FeedError)]
        if failed:
            made[place] = failed[0]
            continue
        rows.append(row)  # type: ignore[arg-type]
        places.append(place)
    for place, outcome in zip(places, outcomes(run, rows), strict=True):
        made[place] = outcome
    return made


class Worker:
    """Takes tables and gives tables. The first call tells what went wrong at the start."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._error: GraphcoreError | None = None
        context = ray.get_runtime_context()
        self._node = context.get_node_id()
        # The tokenizers of a worker are to use no more processors than its model; they look when they start.
        os.environ.setdefault("RAYON_NUM_THREADS", str(job.threads))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own, about what it asks itself
            is_restarted = context.was_current_actor_reconstructed
        if is_restarted:
            _LOG.warning(
                "map_batches: a worker of %s on node %s had died, and was started again as process %d: what it had not"
                " finished runs again",
                job.placed.name, self._node, os.getpid(),
            )  # fmt: skip
        try:
            job.placed.path()
        except GraphcoreError as error:  # which names the node
            self._error = error
            return
        try:
            self._run = job.start(job.load())
        except Exception as error:
            self._error = ModelError(
                f"map_batches: {job.placed.name} does not load on node {self._node}: {text_of(error)}",
                help=getattr(error, "help", "") or "install the same releases on all nodes",
            )

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        """Return the table with the outputs' columns."""
        if self._error is not None:
            raise self._error
        made = outcomes_of(self._job, self._run, table)
        failed = [place for place, outcome in enumerate(made) if isinstance(outcome, Exception)]
        if failed:
            self._report(table, made, failed)
        return _table(self._job, table, made)

    def _report(self, table: pyarrow.Table, made: list[Outcome], failed: list[int]) -> None:
        """Log what failed, or raise the first. Raises `FeedError`."""
        first = made[failed[0]]
        assert isinstance(first, Exception)
        block = f"the block of {table.num_rows} rows of task {ray.get_runtime_context().get_task_id()}"
        text = f"row {failed[0]} of {block} on node {self._node}: {text_of(first)}"
        if self._job.on_error == "raise":
            raise FeedError(
                f"map_batches: {self._job.placed.name}: {text}",
                help='mend the row, or give on_error="drop" or on_error="column"',
            )
        count = "1 row" if len(failed) == 1 else f"{len(failed)} rows, the first of them"
        done = "left out" if self._job.on_error == "drop" else f"with an error in {self._job.error_column!r}"
        _LOG.warning("map_batches: %s: %s %s: %s", self._job.placed.name, count, done, text)


def _table(job: Job, table: pyarrow.Table, made: list[Outcome]) -> pyarrow.Table:
    if job.on_error == "drop" and any(isinstance(outcome, Exception) for outcome in made):
        kept = [place for place, outcome in enumerate(made) if not isinstance(outcome, Exception)]
        table, made = table.take(kept), [made[place] for place in kept]
    result = table if job.keep else table.select([])
    fields = [*result.schema]
    columns = [*result.columns]
    for number, (name, type_) in enumerate(job.outputs.values()):
        fields.append(field(name, type_))
        rows = [None if isinstance(outcome, Exception) else outcome[number] for outcome in made]
        columns.append(column(rows, type_, fields[-1]))
    if job.on_error == "column":
        fields.append(pyarrow.field(job.error_column, pyarrow.string()))
        texts = [text_of(outcome) if isinstance(outcome, Exception) else None for outcome in made]
        columns.append(pyarrow.array(texts, pyarrow.string()))
    return pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(fields))


# Columns of Arrow as arrays, one a row, and arrays as columns.

Row: TypeAlias = "Array | FeedError"
"""The array of a row, or why there is none."""


def arrays_of(column: pyarrow.ChunkedArray, type_: TensorType, name: str) -> list[Row]:
    """Return an array for each row of a column. type_: of a row. name: the column's, as errors call it.

    A row that is null, has a null in it, is not rectangular, or has a value that the dtype has not, is an error.
    """
    made: list[Row] = []
    for chunk in column.chunks:
        made += _chunk(chunk, type_, name)
    return made


def _chunk(chunk: Any, type_: TensorType, name: str) -> list[Row]:
    raw = _raw(chunk, type_, name)
    dtype = type_.dtype
    if dtype is DType.string or carrier(dtype) is dtype:
        return raw
    made: list[Row] = []
    for row in raw:
        try:
            made.append(row if isinstance(row, FeedError) else restored(row, dtype, f"column {name!r}"))
        except FeedError as error:
            made.append(error)
    return made


def _raw(chunk: Any, type_: TensorType, name: str) -> list[Row]:
    """Return the rows of a chunk in the dtype of the carrier."""
    sizes: tuple[int, ...]
    if isinstance(chunk, pyarrow.FixedShapeTensorArray):
        sizes, values = tuple(chunk.type.shape), chunk.storage
        if chunk.type.permutation not in (None, [*range(len(sizes))]):
            return list(chunk.to_numpy_ndarray())
    elif isinstance(chunk, pyarrow.ExtensionArray):  # Ray's tensors
        return [_null(name) if row is None else np.asarray(row) for row in chunk.to_numpy(zero_copy_only=False)]
    else:
        sizes, values = _even(chunk.type), chunk
    whole = column_of(values.type).rank
    if values.null_count or type_.dtype is DType.string or whole != len(_even(values.type)):
        vectors = None if type_.dtype is DType.string else _vectors(values)
        if vectors is not None:
            return vectors
        return [_shaped(_one(value, type_, name), sizes) for value in values.to_pylist()]
    for _ in _even(values.type):
        values = values.flatten()
    if values.null_count:
        each = int(np.prod(sizes))
        listed = values.to_pylist()
        parts = [listed[at : at + each] if sizes else listed[at] for at in range(0, len(listed), each)]
        return [_shaped(_one(part, TensorType(type_.dtype, sizes), name), sizes) for part in parts]
    flat = values.to_numpy(zero_copy_only=False).astype(carrier(type_.dtype).numpy, copy=False)
    return list(flat.reshape(-1, *sizes))


def _shaped(row: Row, sizes: tuple[int, ...]) -> Row:
    """Return a row of a column of one size in that shape."""
    if isinstance(row, FeedError) or not sizes or row.shape == sizes or row.size != int(np.prod(sizes)):
        return row
    return row.reshape(sizes)


def _even(type_: Any) -> tuple[int, ...]:
    """Return the sizes of lists of fixed size, from the outside in, up to the first that is none."""
    sizes: list[int] = []
    while pyarrow.types.is_fixed_size_list(type_):
        sizes.append(type_.list_size)
        type_ = type_.value_type
    return tuple(sizes)


def _vectors(chunk: Any) -> list[Row] | None:
    """Return the rows of lists of numbers as views of their values; None for other chunks and for nulls."""
    is_list = pyarrow.types.is_list(chunk.type) or pyarrow.types.is_large_list(chunk.type)
    if not is_list or chunk.null_count or pyarrow.types.is_nested(chunk.type.value_type) or chunk.values.null_count:
        return None
    values, ends = chunk.values.to_numpy(zero_copy_only=False), chunk.offsets.to_numpy()
    return [values[first:end] for first, end in pairwise(ends)]


def _one(value: Any, type_: TensorType, name: str) -> Row:
    if value is None:
        return _null(name)
    dtype = type_.dtype
    try:
        made = np.asarray(value, object if dtype is DType.string else carrier(dtype).numpy)
    except (TypeError, ValueError, OverflowError):
        return FeedError(f"column {name!r}: {value!r:.60} is not rectangular, or has nulls", help="clean the column")
    if dtype is DType.string and not all(isinstance(text, str) for text in made.flat):
        return FeedError(f"column {name!r}: {value!r:.60} has what is no text", help="clean the column")
    if (dtype.is_float or dtype is DType.bool) and _has_null(value):
        return FeedError(f"column {name!r}: {value!r:.60} has a null", help="fill it beforehand")
    if not made.size and type_.shape.is_ranked and made.ndim < type_.rank:  # an empty list does not tell the other dims
        made = made.reshape(*made.shape, *(int(d) if d.is_static else 0 for d in list(type_.shape)[made.ndim :]))
    return made


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(_has_null, value)))


def _null(name: str) -> FeedError:
    return FeedError(f"column {name!r}: the row is null", help="fill it, or filter it out, beforehand")


def column(rows: Sequence[Array | None], type_: TensorType, field: pyarrow.Field) -> pyarrow.Array:
    """Return the column of arrays, one a row; a row of None is null. type_: of a row. field: `arrow_types.field`."""
    dtype = type_.dtype
    arrow = field.type
    if isinstance(arrow, pyarrow.BaseExtensionType) or pyarrow.types.is_fixed_size_list(arrow):
        size = int(np.prod([int(dim) for dim in type_.shape]))
        storage = arrow.storage_type if isinstance(arrow, pyarrow.BaseExtensionType) else arrow
        blank = np.zeros(size, carrier(dtype).numpy)
        flat = [blank if row is None else carried(row, dtype).reshape(-1) for row in rows]
        values = _values(np.concatenate(flat) if flat else blank[:0], dtype)
        mask = pyarrow.array([row is None for row in rows], pyarrow.bool_())
        made = pyarrow.FixedSizeListArray.from_arrays(values, type=storage, mask=mask)
        return made if storage is arrow else pyarrow.ExtensionArray.from_storage(arrow, made)
    return _nested([None if row is None else carried(row, dtype) for row in rows], type_.rank, dtype)


def _nested(rows: Sequence[Array | None], rank: int, dtype: DType) -> pyarrow.Array:
    if rank == 0:
        listed = [None if row is None else row.item() if isinstance(row, np.ndarray) else row for row in rows]
        return pyarrow.array(listed, value_type(dtype))
    mask = pyarrow.array([row is None for row in rows], pyarrow.bool_())
    ends = np.cumsum([0, *(0 if row is None else len(row) for row in rows)]).astype(np.int32)
    if rank == 1:
        flat = [row for row in rows if row is not None]
        kind = object if dtype is DType.string else carrier(dtype).numpy
        values = _values(np.concatenate(flat) if flat else np.zeros(0, kind), dtype)
    else:
        values = _nested([part for row in rows if row is not None for part in row], rank - 1, dtype)
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), values, mask=mask)


def _values(flat: Array, dtype: DType) -> pyarrow.Array:
    if dtype is DType.string:
        return pyarrow.array([str(text) for text in flat], pyarrow.string())
    return pyarrow.array(flat.astype(carrier(dtype).numpy, copy=False), value_type(dtype))


# Rows run one job at a time: which failed is found by halves, and what becomes of it is the caller's choice.

Run: TypeAlias = Callable[[Sequence[Mapping[str, Array]]], Sequence[Sequence[Array]]]
Outcome: TypeAlias = "Sequence[Array] | Exception"


def runner(model: Model, batch: int | None, pad: Any, padding: float, dim: str | Mapping[str, int] | None) -> Run:
    """Return what runs rows as `Model.map` does: put together by their lengths, and filled up with pad."""

    def run(rows: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
        window = max(len(rows), 1)
        return list(model.map(rows, batch=batch, pad=pad, padding=padding, dim=dim, window=window))

    return run


def outcomes(run: Run, rows: Sequence[Mapping[str, Array]]) -> list[Outcome]:
    """Return the outputs of each row, or why it has none: where rows fail together, each half is run by itself."""
    if not rows:
        return []
    try:
        made = list(run(rows))
    except Exception as error:
        if len(rows) == 1:
            return [_of_row(error)]
        middle = len(rows) // 2
        return [*outcomes(run, rows[:middle]), *outcomes(run, rows[middle:])]
    return [*made]


def _of_row(error: Exception) -> Exception:
    """Return the error of a row, which is alone and needs no number."""
    cause = error.__cause__
    return cause if isinstance(error, GraphcoreError) and isinstance(cause, GraphcoreError) else error


def text_of(error: Exception) -> str:
    """Return an error on one line."""
    if isinstance(error, GraphcoreError):
        return error.summary
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
