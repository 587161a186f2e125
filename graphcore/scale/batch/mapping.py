"""`map_batches`: a model over the rows of a Ray Dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Mapping
from typing import Any

import ray
import ray.data

from graphcore.arrays.resource_limits import Limits
from graphcore.errors import DTypeError, FeedError, GraphcoreError, GraphError
from graphcore.ir.graph import Graph
from graphcore.runtime.calls.batching import batching
from graphcore.runtime.calls.rows import row_types
from graphcore.runtime.model import Model
from graphcore.scale.batch.arrow_types import check
from graphcore.scale.batch.planning import SAMPLE, BatchPlan, ClusterNode, Measurement, measure, own_memory, plan
from graphcore.scale.batch.worker import BatchJob, BatchWorker, OnError, outcomes_of
from graphcore.scale.placing import place_models
from graphcore.scale.recipes import Recipe, graph_of, require_counts
from graphcore.scale.storage import require_tensors
from graphcore.support.escaping import choices, suggestion
from graphcore.types.tensor_types import TensorType

_LOG = logging.getLogger("graphcore.scale")
_READERS = {
    "DataFrame": "ray.data.from_pandas(frame)",
    "Table": "ray.data.from_arrow(table)",
    "list": "ray.data.from_items(rows)",
    "ndarray": "ray.data.from_numpy(array)",
    "str": "ray.data.read_parquet(path)",
}
_CHOICES: tuple[OnError, ...] = ("raise", "drop", "column")


def map_batches(
    dataset: Any,
    model: Graph | str | os.PathLike[str] | Recipe,
    inputs: Mapping[str, str] | None = None,
    *,
    outputs: Mapping[str, str] | None = None,
    on_error: OnError = "raise",
    error_column: str = "error",
    keep: bool = True,
    pad: Any = None,
    padding: float = 0.5,
    dim: str | Mapping[str, int] | None = None,
    rows: int | None = None,
    batch_size: int | None = None,
    threads: int | None = None,
    workers: int | None = None,
    share_weights: bool = True,
    provider: str | None = None,
    limits: Limits | None = None,
) -> Any:
    """Return a Dataset with the outputs of a model as columns. Each worker loads the model once.

    Column types are checked before the work starts; the work starts when the result is read, as always in Ray Data. A
    worker that dies is restarted, and its unfinished block runs again: each row is in the result exactly once.

    Args:
        dataset: A `ray.data.Dataset`.
        model: A Graph, the path of an ONNX file, or a recipe such as `models.minilm.Embedding()`. All inputs and
            outputs need the batch dim.
        inputs: The column of each input; by default the column of the same name. A row has the dtype of the input
            and its shape without the batch; docs/howto/batch_jobs.md has the Arrow types.
        outputs: The column name of each output; by default its name.
        on_error: What happens to a row that fails, which is logged with its block: "raise" ends the job, "drop" removes
            the row, "column" sets its outputs to null and `error_column` to the error.
        error_column: The name of that column.
        keep: Keep the other columns.
        pad: `pad=` of `Model.map`, for rows of different lengths in a block.
        padding: `padding=` of `Model.map`.
        dim: `dim=` of `Model.map`.
        rows: `batch=` of `Model.map`.
        batch_size: The number of rows of a block. This, `threads` and `workers` default to values chosen from the cores
            of the cluster and a measurement of 64 rows.
        threads: The number of threads of a worker.
        workers: The number of workers.
        share_weights: Workers of a node share the memory of weights. If False, each has a copy in the layout that its
            kernels read fastest.
        provider: The execution provider of the sessions.
        limits: The limits of reading a file, as in `Graph.load`.

    Raises:
        FeedError: A column has the wrong dtype or shape.
        ModelError: The model cannot run in batches.
        GraphError: An argument is invalid.
        RayTaskError: A worker raised an error (from Ray).
    """
    if not isinstance(dataset, ray.data.Dataset):
        reader = _READERS.get(type(dataset).__name__, 'ray.data.read_parquet("rows/")')
        raise DTypeError(
            f"map_batches: dataset must be a Ray Dataset, got {type(dataset).__name__}", help=f"give {reader}"
        )
    if on_error not in _CHOICES:
        raise GraphError(f"map_batches: unknown on_error={on_error!r:.40}", help=choices(on_error, _CHOICES))
    counts = {"batch_size": batch_size, "threads": threads, "workers": workers, "rows": rows}
    require_counts("map_batches", **{name: value for name, value in counts.items() if value is not None})
    recipe = model if isinstance(model, Recipe) and not isinstance(model, Graph) else None
    graph = recipe.graph() if recipe is not None else graph_of("map_batches", model, limits)
    (placed_model,) = place_models(graph)
    job = BatchJob(
        placed_model, recipe, {}, {}, on_error, error_column, keep, threads or 1, share_weights, provider, rows, pad,
        padding, dim,
    )  # fmt: skip
    before = own_memory()
    loaded = job.load()
    input_types, output_types = _types(recipe, loaded, dim)
    columns = _columns(dataset)
    job = dataclasses.replace(
        job,
        inputs=_name_columns("inputs", inputs, input_types),
        outputs=_name_columns("outputs", outputs, output_types),
    )
    input_columns = {name: column for name, (column, _) in job.inputs.items()}
    if columns is not None:
        check(loaded.name, columns, input_columns, input_types)
        _require_new(job, columns)
    measurement = None
    if batch_size is None or (threads is None and workers is None):
        measurement = _measure_rows(dataset, job, loaded, before)
    chosen_plan = plan(_nodes(), measurement, batch_size, threads, workers)
    job = dataclasses.replace(job, threads=chosen_plan.threads)
    return _map_blocks(dataset, job, chosen_plan)


def _map_blocks(dataset: Any, job: BatchJob, chosen: BatchPlan) -> Any:
    _LOG.info("map_batches: %s: %s", job.placed.name, chosen)
    return dataset.map_batches(
        BatchWorker,
        fn_constructor_kwargs={"job": job},
        batch_size=chosen.batch_size,
        batch_format="pyarrow",
        num_cpus=chosen.cpus,
        compute=ray.data.ActorPoolStrategy(size=chosen.workers),
        udf_modifying_row_count=job.on_error == "drop",
    )


def _types(
    recipe: Recipe | None, model: Model, dim: str | Mapping[str, int] | None
) -> tuple[dict[str, TensorType], dict[str, TensorType]]:
    """Return the type of a row of each input and output, without the batch."""
    if recipe is not None:
        inputs, outputs = dict(recipe.inputs), dict(recipe.outputs)
        return row_types(inputs, dict.fromkeys(inputs, 0)), row_types(outputs, dict.fromkeys(outputs, 0))
    inputs, outputs = (
        require_tensors(model.name, "input", model.inputs),
        require_tensors(model.name, "output", model.outputs),
    )
    axes = batching(model.name, inputs, outputs, dim)
    for name, type_ in outputs.items():
        if not type_.shape.is_ranked:
            raise GraphError(
                f"map_batches: {model.name}: output {name!r} is {type_}, but a column needs a known rank",
                help="give the output a shape, or remove it from the model",
            )
    return row_types(inputs, axes.inputs), row_types(outputs, axes.outputs)


def _name_columns(
    what: str, names: Mapping[str, str] | None, types: Mapping[str, TensorType]
) -> dict[str, tuple[str, TensorType]]:
    first = next(iter(types))
    if names is not None and not isinstance(names, Mapping):
        column = names if isinstance(names, str) else "column"
        raise GraphError(
            f"map_batches: {what} must be a dict from {what} to columns, got {names!r:.60}",
            help=f"give {what}={{{first!r}: {column!r:.60}}}",
        )
    columns = dict(names or {})
    for name, column in columns.items():
        if name not in types:
            swapped_hint = (
                f"give the name in the model first: {{{column!r}: {name!r:.60}}}; " if column in types else ""
            )
            raise GraphError(
                f"map_batches: {what}: the model has no {what[:-1]} {name!r:.80}",
                help=f"{suggestion(name, types) if isinstance(name, str) else ''}{swapped_hint}"
                f"it has {', '.join(types)}",
            )
        if not isinstance(column, str):
            raise GraphError(
                f"map_batches: {what}: {column!r:.60} is not the name of a column",
                help=f"give {what}={{{name!r}: 'column'}}",
            )
    return {name: (columns.get(name, name), type_) for name, type_ in types.items()}


def _columns(dataset: Any) -> dict[str, Any] | None:
    """Return the column types of a dataset; None if it has no rows to infer them from."""
    schema = dataset.schema()
    return None if schema is None else dict(zip(schema.names, schema.types, strict=True))


def _require_new(job: BatchJob, columns: Mapping[str, Any]) -> None:
    """Raise `FeedError` if an output would overwrite a column."""
    new_names = [name for name, _ in job.outputs.values()] + [job.error_column] * (job.on_error == "column")
    clashes = [name for name in new_names if job.keep and name in columns] or [
        n for n in new_names if new_names.count(n) > 1
    ]
    if clashes:
        raise FeedError(
            f"map_batches: there is a column {clashes[0]!r} already",
            help=f"give the output another name: outputs={{{clashes[0]!r}: 'other'}}, or give keep=False",
        )


def _measure_rows(dataset: Any, job: BatchJob, model: Model, before: float) -> Measurement | None:
    """Measure some rows on this machine. Returns None if there are none, or they fail."""
    run = job.start(model)
    with contextlib.suppress(GraphcoreError, ValueError):
        table = dataset.limit(SAMPLE).take_batch(SAMPLE, batch_format="pyarrow")
        return measure(lambda: outcomes_of(job, run, table), table.num_rows, before)
    return None


def _nodes() -> list[ClusterNode]:
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [ClusterNode(float(each.get("CPU", 0)), float(each.get("memory", float("inf")))) for each in alive]
