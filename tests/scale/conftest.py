"""One local Ray cluster for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.scale.clusters import cluster


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """Yield the mark of a cluster of 3 processors; see `clusters.processes`."""
    with ExitStack() as stack:
        try:
            mark = stack.enter_context(cluster(3))
        except Exception as error:
            pytest.skip(f"no local cluster starts on this machine: {error!r:.200}")
        yield mark
