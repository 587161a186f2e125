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
from graphcore.scale.batch.planning import SAMPLE, Measured, Node, Plan, measure, own_memory, plan
from graphcore.scale.batch.worker import Job, OnError, Worker, outcomes_of
from graphcore.scale.carriers import tensors
from graphcore.scale.placing import placed
from graphcore.scale.recipes import Recipe, graph_of
from graphcore.support.escaping import suggestion
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
    """Return a Dataset with a model's outputs as columns, computed by workers that each load the model once.

    dataset: a `ray.data.Dataset`. model: a Graph, the path of an ONNX file, or a recipe such as
    `models.minilm.Embedding()`, whose inputs and outputs all carry the batch. inputs: the column of each input, by
    default the one of its name; outputs: the name of each output's column. A row of an input has its dtype and its
    shape without the batch; docs/howto/batch_jobs.md has the Arrow types. keep: whether the other columns stay.

    on_error: what becomes of a row that fails, which is reported with its block: "raise" ends the job, "drop" leaves
    the row out, and "column" gives it nulls and a text in `error_column`. pad, padding, dim, rows: `pad=`, `padding=`,
    `dim=` and `batch=` of `Model.map`, for rows of several lengths, which are put together within a block.

    batch_size: rows of a block that a worker is given at once. threads: of a worker. workers: how many. Each is chosen
    by default, from the cores of the cluster and a measurement of 64 rows. share_weights: whether workers of a node
    use the same memory for weights; without it each has a copy, in the order that its kernels read fastest. provider:
    of the sessions. limits: of reading a file, as in `Graph.load`.

    The types of the columns are checked before work starts, and the work starts when the result is read, as all of
    Ray Data's. A worker that dies is started again, and what it had not finished runs again: no row is lost, none is
    there twice.

    Raises `FeedError` that names the column, its dtype and its shape; `ModelError` for a model that cannot be run in
    batches; `GraphError` for arguments that make no sense. What a worker raises comes as Ray's `RayTaskError`.
    """
    if not isinstance(dataset, ray.data.Dataset):
        reader = _READERS.get(type(dataset).__name__, 'ray.data.read_parquet("rows/")')
        raise DTypeError(f"map_batches: a {type(dataset).__name__} is no Ray Dataset", help=f"give {reader}")
    if on_error not in _CHOICES:
        raise GraphError(
            f"map_batches: there is no on_error={on_error!r:.40}",
            help=f"{suggestion(on_error, _CHOICES)}use one of {', '.join(_CHOICES)}",
        )
    for name, value in (("batch_size", batch_size), ("threads", threads), ("workers", workers), ("rows", rows)):
        _require_count(name, value)
    recipe = model if isinstance(model, Recipe) and not isinstance(model, Graph) else None
    graph = recipe.graph() if recipe is not None else graph_of("map_batches", model, limits)
    (there,) = placed(graph)
    job = Job(
        there, recipe, {}, {}, on_error, error_column, keep, threads or 1, share_weights, provider, rows, pad,
        padding, dim,
    )  # fmt: skip
    before = own_memory()
    loaded = job.load()
    given, made = _types(recipe, loaded, dim)
    columns = _columns(dataset)
    job = dataclasses.replace(job, inputs=_named("inputs", inputs, given), outputs=_named("outputs", outputs, made))
    chosen = {name: column for name, (column, _) in job.inputs.items()}
    if columns is not None:
        check(loaded.name, columns, chosen, given)
        _require_new(job, columns)
    measured = None
    if batch_size is None or (threads is None and workers is None):
        measured = _measured(dataset, job, loaded, before)
    chosen_plan = plan(_nodes(), measured, batch_size, threads, workers)
    job = dataclasses.replace(job, threads=chosen_plan.threads)
    return _mapped(dataset, job, chosen_plan)


def _mapped(dataset: Any, job: Job, chosen: Plan) -> Any:
    _LOG.info("map_batches: %s: %s", job.placed.name, chosen)
    return dataset.map_batches(
        Worker,
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
    """Return the types of a row of each input and output, without the batch."""
    if recipe is not None:
        inputs, outputs = dict(recipe.inputs), dict(recipe.outputs)
        return _rows(inputs, dict.fromkeys(inputs, 0)), _rows(outputs, dict.fromkeys(outputs, 0))
    inputs, outputs = tensors(model.name, "input", model.inputs), tensors(model.name, "output", model.outputs)
    axes = batching(model.name, inputs, outputs, dim)
    for name, type_ in outputs.items():
        if not type_.shape.is_ranked:
            raise GraphError(
                f"map_batches: {model.name}: output {name!r} is {type_}, whose rank no column can have",
                help="give the output a shape, or leave it out",
            )
    return _rows(inputs, axes.inputs), _rows(outputs, axes.outputs)


def _rows(types: Mapping[str, TensorType], axes: Mapping[str, int]) -> dict[str, TensorType]:
    made = {}
    for name, type_ in row_types(types, axes).items():
        assert isinstance(type_, TensorType)
        made[name] = type_
    return made


def _named(
    what: str, names: Mapping[str, str] | None, types: Mapping[str, TensorType]
) -> dict[str, tuple[str, TensorType]]:
    first = next(iter(types))
    if names is not None and not isinstance(names, Mapping):
        column = names if isinstance(names, str) else "column"
        raise GraphError(
            f"map_batches: {what}={names!r:.60} is no dict of columns by their {what}",
            help=f"give {what}={{{first!r}: {column!r:.60}}}",
        )
    given = dict(names or {})
    for name, column in given.items():
        if name not in types:
            turned = f"the model's name comes first: {{{column!r}: {name!r:.60}}}; " if column in types else ""
            raise GraphError(
                f"map_batches: {what}: the model has no {name!r:.80}",
                help=f"{suggestion(name, types) if isinstance(name, str) else ''}{turned}it has {', '.join(types)}",
            )
        if not isinstance(column, str):
            raise GraphError(
                f"map_batches: {what}: {column!r:.60} is no name of a column",
                help=f"give {what}={{{name!r}: 'column'}}",
            )
    return {name: (given.get(name, name), type_) for name, type_ in types.items()}


def _columns(dataset: Any) -> dict[str, Any] | None:
    """Return the types of a dataset's columns; None where it has no rows that tell."""
    schema = dataset.schema()
    return None if schema is None else dict(zip(schema.names, schema.types, strict=True))


def _require_new(job: Job, columns: Mapping[str, Any]) -> None:
    """Raise `FeedError` where an output would take the place of a column."""
    made = [name for name, _ in job.outputs.values()] + [job.error_column] * (job.on_error == "column")
    taken = [name for name in made if job.keep and name in columns] or [n for n in made if made.count(n) > 1]
    if taken:
        raise FeedError(
            f"map_batches: there is a column {taken[0]!r} already",
            help=f"name the output otherwise: outputs={{{taken[0]!r}: 'other'}}, or give keep=False",
        )


def _measured(dataset: Any, job: Job, model: Model, before: float) -> Measured | None:
    """Return what some rows cost on this machine; None where there are none, or they fail."""
    run = job.start(model)
    with contextlib.suppress(GraphcoreError, ValueError):
        table = dataset.limit(SAMPLE).take_batch(SAMPLE, batch_format="pyarrow")
        return measure(lambda: outcomes_of(job, run, table), table.num_rows, before)
    return None


def _nodes() -> list[Node]:
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(float(each.get("CPU", 0)), float(each.get("memory", float("inf")))) for each in alive]


def _require_count(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise GraphError(
            f"map_batches: {name}={value!r:.40} is no number from 1 on", help="leave it out to have it chosen"
        )
