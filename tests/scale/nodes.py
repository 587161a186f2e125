"""A cluster of several nodes on this machine, each with a folder for temporary files of its own.

    python -m tests.scale.nodes FOLDER

A program of its own, since a process is a driver of one cluster. It prints what it found as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import ray
import ray.data
from ray.cluster_utils import Cluster

from graphcore import Graph, TensorType, ops
from graphcore.errors import ModelError
from graphcore.scale import map_batches
from graphcore.scale.placing import place_models

STORE = 100 << 20
ROWS = 200


def _graph(name: str, seed: int) -> Graph:
    weight = np.random.default_rng(seed).standard_normal((128, 128), np.float32)
    graph = Graph(name, {"x": TensorType("float32", ["batch", 128, 128])})
    y = graph["x"]
    for _ in range(20):
        y = ops.matmul(y, graph.constant(weight)) * np.float32(0.05)
    graph.output(y=ops.sum(y, axis=(1, 2)), same=graph["x"][:, 0, 0])
    return graph


def _rows(waits: dict[int, list[Path]]) -> Any:
    """Return rows whose blocks wait for files: those from a row on, by that row."""

    def widened(table: pyarrow.Table) -> dict[str, Any]:
        ids = table.column("id").to_numpy()
        for first, paths in waits.items():
            until = time.monotonic() + 120
            while ids[0] >= first and not all(any(p.parent.glob(p.name)) for p in paths) and time.monotonic() < until:
                time.sleep(0.05)
        return {"id": ids, "x": np.ones((len(ids), 128, 128), np.float32) * ids.astype(np.float32)[:, None, None]}

    return ray.data.range(ROWS, override_num_blocks=10).map_batches(widened, batch_format="pyarrow")


def _folder(root: Path) -> Path:
    return root / f"graphcore-models-{os.getuid()}"


def _has_file(root: Path) -> bool:
    return any(_folder(root).glob("*.onnx"))


def _report(what: str) -> None:
    print(f"{time.monotonic():.1f} {what}", file=sys.stderr, flush=True)


def main(root: Path) -> dict[str, Any]:
    """Run a job while a node is killed, then one whose file no node gets."""
    folders = {name: root / name for name in ("head", "first", "second")}
    for folder in folders.values():
        folder.mkdir()
    os.environ["TMPDIR"] = str(folders["head"])
    # Two processors each: a worker of nodes with one reserves none of it, and Ray then takes any node.
    head = {"num_cpus": 2, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = {
        name: cluster.add_node(num_cpus=2, object_store_memory=STORE, env_vars={"TMPDIR": str(folders[name])})
        for name in ("first", "second")
    }
    _report("the nodes are there")
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    results: dict[str, Any] = {"nodes": sum(node["Alive"] for node in ray.nodes()), "killed": False}

    killed = root / "killed"
    # The file is to be on all nodes, and the node to be killed, while there is work left.
    waits = {60: [_folder(each) / "*.onnx" for each in folders.values()], 120: [killed]}
    result = map_batches(_rows(waits), _graph("spread", 0), workers=4, batch_size=4, threads=1)

    def kill() -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until and not all(map(_has_file, folders.values())):
            time.sleep(0.02)
        _report("the file is on all nodes")
        time.sleep(0.3)
        cluster.remove_node(nodes["second"], allow_graceful=False)
        results["killed"] = True
        killed.touch()
        _report("a node was killed")

    killer = threading.Thread(target=kill)
    killer.start()
    rows = result.take_all()
    killer.join()
    _report("all rows are there")
    results["placed"] = {name: _has_file(folder) for name, folder in folders.items()}
    results["ids"] = sorted(int(row["id"]) for row in rows)
    results["same"] = all(row["same"] == row["id"] for row in rows)

    late = map_batches(_rows({}), _graph("late", 1), workers=1, batch_size=4, threads=1)
    (lost,) = place_models(_graph("lost", 2))
    for folder in folders.values():
        _folder(folder).rename(folder / "old")
        _folder(folder).write_text("no folder")
    _report("there is no folder for files any more")
    try:
        late.take_all()
    except ray.exceptions.RayTaskError as error:
        results["job"] = str(error)
    _report("a job without them has ended")
    try:
        lost.path()
    except ModelError as error:
        results["node"] = error.summary
    ray.shutdown()
    cluster.shutdown()
    return results


if __name__ == "__main__":
    print("FOUND", json.dumps(main(Path(sys.argv[1]))))
