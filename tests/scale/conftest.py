"""One local Ray cluster for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scale.clusters import cluster


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """Yield the mark of a cluster of 3 processors; see `clusters.processes`."""
    with cluster(3) as mark:
        yield mark
