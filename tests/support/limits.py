"""Limits of the processes that read mutants."""

from __future__ import annotations

import resource


def limit_memory(megabytes: int) -> None:
    """Limit the memory that this process maps beside what it has mapped."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (megabytes << 20), most))
