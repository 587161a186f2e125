"""The plan of a batch job, from cores, memory and a measurement, and the model of clusters larger than this one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.scale_model import efficiency, throughput
from graphcore.scale.batch.planning import Measured, Node, Plan, plan


@pytest.mark.parametrize(
    ("nodes", "measured", "wanted"),
    [
        ([Node(2, 8e9)], Measured(0.01, 1e8), Plan(256, 1, 2, 0.5)),
        ([Node(1, 8e9)], Measured(0.01, 1e8), Plan(256, 1, 1, 0.0)),
        ([Node(8, 8e9)], Measured(0.01, 3e9), Plan(256, 4, 2, 3.5)),
        ([Node(8, 64e9)] * 10, Measured(1e-6, 1e8), Plan(4096, 1, 80, 0.87)),
        ([Node(4, 64e9)], Measured(5.0, 1e8), Plan(16, 1, 4, 0.75)),
        ([Node(4, 64e9)], None, Plan(4096, 1, 4, 0.75)),
    ],
)
def test_plan_follows_cores_memory_and_cost(nodes: list[Node], measured: Measured | None, wanted: Plan) -> None:
    assert plan(nodes, measured) == wanted


def test_plan_keeps_the_numbers_that_were_given() -> None:
    assert plan([Node(8, 8e9)], Measured(0.01, 1e8), 7, 2, 3) == Plan(7, 2, 3, 2.0)


def test_model_of_a_cluster_has_the_limits_of_its_queues() -> None:
    assert throughput(1, 1.0, [0.01]) == pytest.approx(1 / 1.01)
    assert efficiency(1, 1.0, [0.01, 0.001]) == 1
    assert throughput(1000, 1.0, [0.01]) == pytest.approx(100, rel=1e-3)
    assert throughput(2, 0.0, [0.5]) == pytest.approx(2)
    rates = [throughput(workers, 1.0, [0.01, 0.002]) for workers in range(1, 200)]
    assert all(after >= before * (1 - 1e-9) for before, after in pairwise(rates))
