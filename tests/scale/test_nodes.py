"""A cluster of several nodes: each gets the file, one that is killed loses no row, one without the file says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: the extra ray")

from tests.scale import nodes

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


def test_nodes_get_the_file_and_one_that_is_killed_loses_no_row(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_raylet_start_wait_time_s": "120",
        "RAY_worker_niceness": str(os.nice(0)),
        "RAY_TMPDIR": "/tmp",  # paths of sockets are short
    }
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.scale.nodes", str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=400,  # less than faulthandler_timeout, which would end all tests
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    if not lines and "Raylet" in ran.stderr and "start" in ran.stderr:
        pytest.skip(f"no local cluster starts on this machine: {ran.stderr[-200:]}")
    assert lines, ran.stderr[-3000:]
    data = json.loads(lines[0].removeprefix("FOUND "))
    assert data["nodes"] == 3
    assert data["placed"] == {"head": True, "first": True, "second": True}
    assert data["killed"]
    assert data["ids"] == [*range(nodes.ROWS)]
    assert data["same"]
    assert "did not get the file of lost: " in data["node"]
    assert data["job"].count("did not get the file of late: ") >= 1
    assert "help" not in data["node"]
