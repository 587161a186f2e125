"""The plan of a batch job, from cores, memory and a measurement, and the model of clusters larger than this one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.scale_model import efficiency, throughput
from graphcore.scale.batch.planning import BatchPlan, ClusterNode, Measurement, plan


@pytest.mark.parametrize(
    ("nodes", "measured", "wanted"),
    [
        ([ClusterNode(2, 8e9)], Measurement(0.01, 1e8), BatchPlan(256, 1, 2, 0.5)),
        ([ClusterNode(1, 8e9)], Measurement(0.01, 1e8), BatchPlan(256, 1, 1, 0.0)),
        ([ClusterNode(8, 8e9)], Measurement(0.01, 3e9), BatchPlan(256, 4, 2, 3.5)),
        ([ClusterNode(8, 64e9)] * 10, Measurement(1e-6, 1e8), BatchPlan(4096, 1, 80, 0.78)),
        ([ClusterNode(2, 8e9)] * 3, Measurement(0.01, 1e8), BatchPlan(256, 1, 6, 0.33)),
        ([ClusterNode(8, 8e9), ClusterNode(2, 8e9)], Measurement(0.01, 1e8), BatchPlan(256, 1, 10, 0.1)),
        ([ClusterNode(4, 64e9)], Measurement(5.0, 1e8), BatchPlan(16, 1, 4, 0.75)),
        ([ClusterNode(4, 64e9)], None, BatchPlan(4096, 1, 4, 0.75)),
    ],
)
def test_plan_follows_cores_memory_and_cost(
    nodes: list[ClusterNode], measured: Measurement | None, wanted: BatchPlan
) -> None:
    assert plan(nodes, measured) == wanted


@pytest.mark.parametrize("lost", range(3))
def test_plan_leaves_a_processor_to_reading_when_a_node_is_lost(lost: int) -> None:
    cpus = [8.0, 3.0, 2.0]
    chosen = plan([ClusterNode(each, 64e9) for each in cpus], Measurement(0.01, 1e8))
    del cpus[lost]
    assert sum(cpus) - chosen.workers * chosen.cpus >= len(cpus)


def test_plan_keeps_the_numbers_that_were_given() -> None:
    assert plan([ClusterNode(8, 8e9)], Measurement(0.01, 1e8), 7, 2, 3) == BatchPlan(7, 2, 3, 2.0)


def test_model_of_a_cluster_has_the_limits_of_its_queues() -> None:
    assert throughput(1, 1.0, [0.01]) == pytest.approx(1 / 1.01)
    assert efficiency(1, 1.0, [0.01, 0.001]) == 1
    assert throughput(1000, 1.0, [0.01]) == pytest.approx(100, rel=1e-3)
    assert throughput(2, 0.0, [0.5]) == pytest.approx(2)
    rates = [throughput(workers, 1.0, [0.01, 0.002]) for workers in range(1, 200)]
    assert all(after >= before * (1 - 1e-9) for before, after in pairwise(rates))
