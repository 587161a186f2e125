"""A model of a batch job on a cluster: where 10, 100 and 1,000 workers stop scaling, and what holds them.

    python -m benchmarks.scale_model --block 1.0 --driver 0.01 --bytes 2e6

A closed queueing network (Reiser and Lavenberg 1980, exact mean value analysis): each worker has one block at a time,
which takes `block` seconds of its own, `driver` seconds of the one process that hands blocks out, and `bytes` over the
driver's link. The workers never wait for each other but in those two queues.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def throughput(workers: int, block: float, queues: Sequence[float]) -> float:
    """Return blocks a second. block: seconds of a worker for a block. queues: seconds of each queue for one."""
    lengths = [0.0] * len(queues)
    rate = 0.0
    for count in range(1, workers + 1):
        waits = [seconds * (1 + length) for seconds, length in zip(queues, lengths, strict=True)]
        rate = count / (block + sum(waits))
        lengths = [rate * wait for wait in waits]
    return rate


def efficiency(workers: int, block: float, queues: Sequence[float]) -> float:
    """Return the part of so many times one worker's throughput that there is."""
    return throughput(workers, block, queues) / (workers * throughput(1, block, queues))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--block", type=float, default=1.0, help="seconds of a worker for a block (1)")
    parser.add_argument("--driver", type=float, default=0.01, help="seconds of the driver for a block (0.01)")
    parser.add_argument("--bytes", type=float, default=1e6, help="of a block that go over the driver's link (1e6)")
    parser.add_argument("--link", type=float, default=1.25e9, help="bytes a second of that link (1.25e9: 10 Gbit/s)")
    options = parser.parse_args(arguments)
    queues = [options.driver, options.bytes / options.link]
    print("workers  blocks/s  efficiency")
    for workers in (1, 2, 4, 10, 100, 1000):
        rate = throughput(workers, options.block, queues)
        print(f"{workers:7}  {rate:8.1f}  {efficiency(workers, options.block, queues):10.2f}")


if __name__ == "__main__":
    main()
