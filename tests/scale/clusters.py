"""A local Ray cluster for tests, and the processes of its workers."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MARK = "GRAPHCORE_TEST_CLUSTER"


@contextmanager
def cluster(cpus: int, store: int = 200 << 20) -> Iterator[str]:
    """Start a cluster of this machine's, and yield a mark that the environment of its processes has."""
    import ray

    mark = uuid.uuid4().hex
    os.environ[_MARK] = mark
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_raylet_start_wait_time_s"] = "120"  # noqa: SIM112
    # It is 15, which on a busy machine is next to no time.
    os.environ["RAY_worker_niceness"] = str(os.nice(0))  # noqa: SIM112
    ray.init(num_cpus=cpus, include_dashboard=False, object_store_memory=store, log_to_driver=True)
    try:
        yield mark
    finally:
        end(ray.shutdown, mark)
        del os.environ[_MARK]


def end(shutdown: Callable[[], None], mark: str) -> None:
    """Shut down Ray or its Serve; the processes of a cluster that does not end by itself are killed.

    Ray waits for answers of processes without a limit of its own.
    """
    ending = threading.Thread(target=shutdown, daemon=True)
    ending.start()
    ending.join(60)
    if ending.is_alive():
        for process in processes(mark, ""):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        ending.join(60)


def processes(mark: str, name: str) -> list[int]:
    """Return the ids of a cluster's processes whose command begins with a name, such as "ray::MapWorker"."""
    results = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            command = (place / "cmdline").read_bytes()
            environment = (place / "environ").read_bytes()
        except OSError:
            continue
        if command.startswith(name.encode()) and f"{_MARK}={mark}".encode() in environment:
            results.append(int(place.name))
    return results


@contextmanager
def killing(mark: str, name: str) -> Iterator[list[int]]:
    """Kill one process of a cluster, half a second after the first new one of this name; yield the list of whom."""
    killed: list[int] = []
    before = {*processes(mark, name)}  # those of an earlier job may still be ending

    def kill() -> None:
        for _ in range(6000):
            for process in {*processes(mark, name)} - before:
                time.sleep(0.5)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)
                    return
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    yield killed
    killer.join()


def rows_of(dataset: Any, key: str = "id") -> dict[Any, Any]:
    """Return the rows of a dataset by a column, each of which must be there once."""
    rows = dataset.take_all()
    results = {row[key]: row for row in rows}
    assert len(results) == len(rows)
    return results
