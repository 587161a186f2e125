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
from graphcore.scale.placing import PlacedModel
from graphcore.scale.recipes import Recipe
from graphcore.scale.storage import from_storage, storage_dtype, to_storage
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

OnError: TypeAlias = Literal["raise", "drop", "column"]

_LOG = logging.getLogger("graphcore.scale")


@dataclass(frozen=True, slots=True)
class BatchJob:
    """The work of each worker.

    inputs, outputs: the column and the type of a row of each. keep: keep the other columns. error_column: the column
    of errors, with on_error="column". rows: the rows of a run of the model, None for an automatic choice.
    """

    placed: PlacedModel
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
        """Load the model from its file on this node."""
        # Spinning threads would take processors from other workers.
        session = InferenceSession(
            self.providers, config={"session.intra_op.allow_spinning": False}, intra_op_num_threads=self.threads
        )
        return session.load(self.placed.path(), prepack="off" if self.shared else "auto")

    def start(self, model: Model) -> Run:
        """Return the function that runs rows: by the recipe, or by `Model.map`, grouped by length, and padded."""
        if self.recipe is not None:
            return partial(self.recipe.run, model)
        options: dict[str, Any] = {"batch": self.rows, "pad": self.pad, "padding": self.padding, "dim": self.dim}
        return lambda rows: list(model.map(rows, window=max(len(rows), 1), **options))


def outcomes_of(job: BatchJob, run: Run, table: pyarrow.Table) -> list[RowOutcome]:
    """Return the outputs of each row of a table, or its error."""
    columns = {name: arrays_of(table.column(c), type_, c) for name, (c, type_) in job.inputs.items()}
    row_outcomes: list[RowOutcome] = [[]] * table.num_rows
    rows: list[dict[str, Array]] = []
    places: list[int] = []
    for place in range(table.num_rows):
        row = {name: values[place] for name, values in columns.items()}
        failed = [value for value in row.values() if isinstance(value, FeedError)]
        if failed:
            row_outcomes[place] = failed[0]
            continue
        rows.append(row)  # type: ignore[arg-type]
        places.append(place)
    for place, outcome in zip(places, outcomes(run, rows), strict=True):
        row_outcomes[place] = outcome
    return row_outcomes


class BatchWorker:
    """Maps tables to tables. The first call raises the error of the constructor, if any."""

    def __init__(self, job: BatchJob) -> None:
        self._job = job
        self._error: GraphcoreError | None = None
        context = ray.get_runtime_context()
        self._node = context.get_node_id()
        # Tokenizers read this when they start, and must not use more processors than the model.
        os.environ.setdefault("RAYON_NUM_THREADS", str(job.threads))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray warns about its own call
            is_restarted = context.was_current_actor_reconstructed
        if is_restarted:
            _LOG.warning(
                "map_batches: a worker of %s on node %s had died, and was started again as process %d: its unfinished"
                " block runs again",
                job.placed.name, self._node, os.getpid(),
            )  # fmt: skip
        try:
            job.placed.path()
        except GraphcoreError as error:  # its text has the node
            self._error = error
            return
        try:
            self._run = job.start(job.load())
        except Exception as error:
            self._error = ModelError(
                f"map_batches: {job.placed.name} does not load on node {self._node}: {text_of(error)}",
                help=getattr(error, "help", "") or "install the same versions on all nodes",
            )

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        """Return the table with the columns of outputs."""
        if self._error is not None:
            raise self._error
        row_outcomes = outcomes_of(self._job, self._run, table)
        failed = [place for place, outcome in enumerate(row_outcomes) if isinstance(outcome, Exception)]
        if failed:
            self._report(table, row_outcomes, failed)
        return _table(self._job, table, row_outcomes)

    def _report(self, table: pyarrow.Table, row_outcomes: list[RowOutcome], failed: list[int]) -> None:
        """Log the first row that failed, or raise its `FeedError`."""
        first = row_outcomes[failed[0]]
        assert isinstance(first, Exception)
        block = f"the block of {table.num_rows} rows of task {ray.get_runtime_context().get_task_id()}"
        text = f"row {failed[0]} of {block} on node {self._node}: {text_of(first)}"
        if self._job.on_error == "raise":
            raise FeedError(
                f"map_batches: {self._job.placed.name}: {text}",
                help='fix the row, or give on_error="drop" or on_error="column"',
            )
        count = "1 row" if len(failed) == 1 else f"{len(failed)} rows, the first of them"
        action = "dropped" if self._job.on_error == "drop" else f"with an error in {self._job.error_column!r}"
        _LOG.warning("map_batches: %s: %s %s: %s", self._job.placed.name, count, action, text)


def _table(job: BatchJob, table: pyarrow.Table, row_outcomes: list[RowOutcome]) -> pyarrow.Table:
    if job.on_error == "drop" and any(isinstance(outcome, Exception) for outcome in row_outcomes):
        places = [place for place, outcome in enumerate(row_outcomes) if not isinstance(outcome, Exception)]
        table, row_outcomes = table.take(places), [row_outcomes[place] for place in places]
    result = table if job.keep else table.select([])
    fields = [*result.schema]
    columns = [*result.columns]
    for number, (name, type_) in enumerate(job.outputs.values()):
        fields.append(field(name, type_))
        rows = [None if isinstance(outcome, Exception) else outcome[number] for outcome in row_outcomes]
        columns.append(column(rows, type_, fields[-1]))
    if job.on_error == "column":
        fields.append(pyarrow.field(job.error_column, pyarrow.string()))
        texts = [text_of(outcome) if isinstance(outcome, Exception) else None for outcome in row_outcomes]
        columns.append(pyarrow.array(texts, pyarrow.string()))
    return pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(fields))


# Conversion of Arrow columns to arrays, one per row, and back.

RowArray: TypeAlias = "Array | FeedError"
"""The array of a row, or its error."""


def arrays_of(column: pyarrow.ChunkedArray, type_: TensorType, name: str) -> list[RowArray]:
    """Return an array for each row of a column. type_: the type of a row. name: the name of the column, for errors.

    A row is an error if it is null, contains a null, is not rectangular, or has a value that the dtype cannot hold.
    """
    rows: list[RowArray] = []
    for chunk in column.chunks:
        rows += _chunk(chunk, type_, name)
    return rows


def _chunk(chunk: Any, type_: TensorType, name: str) -> list[RowArray]:
    raw = _storage_rows(chunk, type_, name)
    dtype = type_.dtype
    if dtype is DType.string or storage_dtype(dtype) is dtype:
        return raw
    rows: list[RowArray] = []
    for row in raw:
        try:
            rows.append(row if isinstance(row, FeedError) else from_storage(row, dtype, f"column {name!r}"))
        except FeedError as error:
            rows.append(error)
    return rows


def _storage_rows(chunk: Any, type_: TensorType, name: str) -> list[RowArray]:
    """Return the rows of a chunk in the storage dtype."""
    sizes: tuple[int, ...]
    if isinstance(chunk, pyarrow.FixedShapeTensorArray):
        sizes, values = tuple(chunk.type.shape), chunk.storage
        if chunk.type.permutation not in (None, [*range(len(sizes))]):
            return list(chunk.to_numpy_ndarray())
    elif isinstance(chunk, pyarrow.ExtensionArray):  # Ray's tensors
        return [_null(name) if row is None else np.asarray(row) for row in chunk.to_numpy(zero_copy_only=False)]
    else:
        sizes, values = _fixed_sizes(chunk.type), chunk
    rank = column_of(values.type).rank
    if values.null_count or type_.dtype is DType.string or rank != len(_fixed_sizes(values.type)):
        vectors = None if type_.dtype is DType.string else _vectors(values)
        if vectors is not None:
            return vectors
        return [_reshape_row(_to_array(value, type_, name), sizes) for value in values.to_pylist()]
    for _ in _fixed_sizes(values.type):
        values = values.flatten()
    if values.null_count:
        each = int(np.prod(sizes))
        listed = values.to_pylist()
        parts = [listed[at : at + each] if sizes else listed[at] for at in range(0, len(listed), each)]
        return [_reshape_row(_to_array(part, TensorType(type_.dtype, sizes), name), sizes) for part in parts]
    flat = values.to_numpy(zero_copy_only=False).astype(storage_dtype(type_.dtype).numpy, copy=False)
    return list(flat.reshape(-1, *sizes))


def _reshape_row(row: RowArray, sizes: tuple[int, ...]) -> RowArray:
    """Reshape a row to the static shape of its column."""
    if isinstance(row, FeedError) or not sizes or row.shape == sizes or row.size != int(np.prod(sizes)):
        return row
    return row.reshape(sizes)


def _fixed_sizes(type_: Any) -> tuple[int, ...]:
    """Return the sizes of nested fixed_size_lists, from the outermost to the last."""
    sizes: list[int] = []
    while pyarrow.types.is_fixed_size_list(type_):
        sizes.append(type_.list_size)
        type_ = type_.value_type
    return tuple(sizes)


def _vectors(chunk: Any) -> list[RowArray] | None:
    """Return the rows of a chunk of lists of numbers as views; None for other chunks, or with nulls."""
    is_list = pyarrow.types.is_list(chunk.type) or pyarrow.types.is_large_list(chunk.type)
    if not is_list or chunk.null_count or pyarrow.types.is_nested(chunk.type.value_type) or chunk.values.null_count:
        return None
    values, ends = chunk.values.to_numpy(zero_copy_only=False), chunk.offsets.to_numpy()
    return [values[first:end] for first, end in pairwise(ends)]


def _to_array(value: Any, type_: TensorType, name: str) -> RowArray:
    if value is None:
        return _null(name)
    dtype = type_.dtype
    try:
        array = np.asarray(value, object if dtype is DType.string else storage_dtype(dtype).numpy)
    except (TypeError, ValueError, OverflowError):
        return FeedError(
            f"column {name!r}: {value!r:.60} is not rectangular, or has nulls", help="fix the row beforehand"
        )
    if dtype is DType.string and not all(isinstance(text, str) for text in array.flat):
        return FeedError(
            f"column {name!r}: {value!r:.60} has a value that is not a string", help="fix the row beforehand"
        )
    if (dtype.is_float or dtype is DType.bool) and _has_null(value):
        return FeedError(f"column {name!r}: {value!r:.60} has a null", help="fill it beforehand")
    if not array.size and type_.shape.is_ranked and array.ndim < type_.rank:  # an empty list lacks the inner dims
        array = array.reshape(*array.shape, *(int(d) if d.is_static else 0 for d in list(type_.shape)[array.ndim :]))
    return array


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(_has_null, value)))


def _null(name: str) -> FeedError:
    return FeedError(f"column {name!r}: the row is null", help="fill it, or filter it out, beforehand")


def column(rows: Sequence[Array | None], type_: TensorType, field: pyarrow.Field) -> pyarrow.Array:
    """Return a column of arrays, one per row; None becomes null. type_: the type of a row. field: of `arrow_types`."""
    dtype = type_.dtype
    arrow = field.type
    if isinstance(arrow, pyarrow.BaseExtensionType) or pyarrow.types.is_fixed_size_list(arrow):
        size = int(np.prod([int(dim) for dim in type_.shape]))
        storage = arrow.storage_type if isinstance(arrow, pyarrow.BaseExtensionType) else arrow
        blank = np.zeros(size, storage_dtype(dtype).numpy)
        flat = [blank if row is None else to_storage(row, dtype).reshape(-1) for row in rows]
        values = _values(np.concatenate(flat) if flat else blank[:0], dtype)
        mask = pyarrow.array([row is None for row in rows], pyarrow.bool_())
        array = pyarrow.FixedSizeListArray.from_arrays(values, type=storage, mask=mask)
        return array if storage is arrow else pyarrow.ExtensionArray.from_storage(arrow, array)
    return _nested([None if row is None else to_storage(row, dtype) for row in rows], type_.rank, dtype)


def _nested(rows: Sequence[Array | None], rank: int, dtype: DType) -> pyarrow.Array:
    if rank == 0:
        listed = [None if row is None else row.item() if isinstance(row, np.ndarray) else row for row in rows]
        return pyarrow.array(listed, value_type(dtype))
    mask = pyarrow.array([row is None for row in rows], pyarrow.bool_())
    ends = np.cumsum([0, *(0 if row is None else len(row) for row in rows)]).astype(np.int32)
    if rank == 1:
        flat = [row for row in rows if row is not None]
        kind = object if dtype is DType.string else storage_dtype(dtype).numpy
        values = _values(np.concatenate(flat) if flat else np.zeros(0, kind), dtype)
    else:
        values = _nested([part for row in rows if row is not None for part in row], rank - 1, dtype)
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), values, mask=mask)


def _values(flat: Array, dtype: DType) -> pyarrow.Array:
    if dtype is DType.string:
        return pyarrow.array([str(text) for text in flat], pyarrow.string())
    return pyarrow.array(flat.astype(storage_dtype(dtype).numpy, copy=False), value_type(dtype))


# Run rows, and find those that fail by bisection.

Run: TypeAlias = Callable[[Sequence[Mapping[str, Array]]], Sequence[Sequence[Array]]]
RowOutcome: TypeAlias = "Sequence[Array] | Exception"


def outcomes(run: Run, rows: Sequence[Mapping[str, Array]]) -> list[RowOutcome]:
    """Return the outputs of each row, or its error. If a run fails, each half runs separately."""
    if not rows:
        return []
    try:
        outputs = list(run(rows))
    except Exception as error:
        if len(rows) == 1:
            return [_unwrap(error)]
        middle = len(rows) // 2
        return [*outcomes(run, rows[:middle]), *outcomes(run, rows[middle:])]
    return [*outputs]


def _unwrap(error: Exception) -> Exception:
    """Return the cause of an error of `Model.map`, without the number of the row, which ran alone."""
    cause = error.__cause__
    return cause if isinstance(error, GraphcoreError) and isinstance(cause, GraphcoreError) else error


def text_of(error: Exception) -> str:
    """Return an error on one line."""
    if isinstance(error, GraphcoreError):
        return error.summary
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
