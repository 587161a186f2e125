"""Options and fixtures of all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

import graphcore
import graphcore.ops.families  # noqa: F401  declares the ops, which tests list
from tests import sampling
from tests.sampling import default_seed, number_of, sample, seconds_of_cases, shard_of

# A shell that runs the tests in the background has SIGINT ignored, and what tests start would inherit that: Ctrl-C
# would end none of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes slow examples, not wrong ones. In CI the examples are the same every time, so that a change is
# never blamed for one that it did not bring.
settings.register_profile("graphcore", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("graphcore")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cases", "which cases run; those named with :: or chosen by -k all do")
    group.addoption("--sample", metavar="SEED", help="the cases that SEED samples (default: the time of the commit)")
    group.addoption("--all", action="store_true", dest="all_cases", help="every case")
    group.addoption("--rest", action="store_true", help="the cases that the sample leaves out")
    group.addoption("--shard", metavar="i/n", help="of these the i-th of n parts")


def pytest_configure(config: pytest.Config) -> None:
    options = config.option
    if options.all_cases and (options.sample or options.rest):
        raise pytest.UsageError("--all keeps every case: leave out --sample and --rest")
    if options.shard:
        try:
            shard_of(options.shard)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from error
    if options.keyword or any("::" in argument for argument in config.args):
        options.all_cases = not options.rest
    if not options.all_cases and not options.rest:
        sampling.is_sampled = True
        settings.register_profile("sample", settings(), max_examples=sampling.MAX_EXAMPLES)
        settings.load_profile("sample")
    options.sample = options.sample or default_seed()  # pytest-xdist hands the options on to its workers


def pytest_report_header(config: pytest.Config) -> str:
    return _shown_sample(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(_shown_sample(config))


def _shown_sample(config: pytest.Config) -> str:
    options = config.option
    if options.all_cases:
        cases = "every case"
    elif options.rest:
        cases = f"what --sample={options.sample} leaves out"
    else:
        cases = f"--sample={options.sample} (repeats it; --all: every case)"
    return f"cases: {cases}{f', shard {options.shard}' if options.shard else ''}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, which would look at all tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


_left_out: set[str] = set()
"""Cases of functions of which the sample has none."""


@pytest.hookimpl(trylast=True)  # after the parameters of fixtures
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Keep the cases of a function that the sample has, before pytest makes an item of each: half of collecting."""
    options, calls = metafunc.config.option, metafunc._calls
    if options.all_cases or not calls:
        return
    test = metafunc.definition
    is_full = test.get_closest_marker("full") is not None
    full = [is_full or any(mark.name == "full" for mark in call.marks) for call in calls]
    remaining = sample([f"{test.nodeid}[{call.id}]" for call in calls], options.sample, full, seconds_of_cases())
    chosen = [call for call, is_kept in zip(calls, remaining, strict=True) if is_kept is not options.rest]
    if not chosen:  # a function without cases would be a test without parameters
        _left_out.add(f"{test.nodeid}[{calls[0].id}]")
    calls[:] = chosen or calls[:1]


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("numbers"):  # for the report that `.ci/newest.py` reads
            item.user_properties.append(("numbers", "true"))
    keep = [item.nodeid not in _left_out for item in items]
    options = config.option
    if not options.all_cases:
        single = [position for position, item in enumerate(items) if not hasattr(item, "callspec")]
        full = [items[position].get_closest_marker("full") is not None for position in single]
        remaining = sample([items[position].nodeid for position in single], options.sample, full, seconds_of_cases())
        for position, is_kept in zip(single, remaining, strict=True):
            keep[position] = is_kept is not options.rest
    if options.shard:
        part, parts = shard_of(options.shard)
        for position, item in enumerate(items):
            keep[position] &= number_of(item.nodeid) % parts == part - 1
    if not all(keep):
        config.hook.pytest_deselected(items=[item for item, is_kept in zip(items, keep, strict=True) if not is_kept])
        items[:] = [item for item, is_kept in zip(items, keep, strict=True) if is_kept]
