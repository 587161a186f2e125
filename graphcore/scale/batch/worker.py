"""A worker of a batch job: an actor of Ray Data that loads the model once and runs tables."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import pyarrow
import ray

from graphcore.arrays.casting import Array
from graphcore.errors import FeedError, GraphcoreError, ModelError
from graphcore.runtime.model import Model
from graphcore.runtime.session import InferenceSession
from graphcore.scale.batch.arrow_types import field
from graphcore.scale.batch.columns import arrays_of, column
from graphcore.scale.batch.rows import Outcome, Run, outcomes, runner, text_of
from graphcore.scale.placing import Placed
from graphcore.scale.recipes import Recipe
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
