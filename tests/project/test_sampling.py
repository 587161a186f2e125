"""The cases that `make test` runs: a sample that repeats, covers every parameter and moves on with the seed."""

from __future__ import annotations

import re

import pytest

from tests import quick, sampling
from tests.sampling import kept_of_function, sample, seconds_of_cases, shard_of, times_of

pytest_plugins = ["pytester"]

CASES = [f"tests/a.py::test_b[{outer}-{inner}]" for outer in range(50) for inner in range(40)]


def test_sample_keeps_every_case_of_a_small_function() -> None:
    assert kept_of_function(CASES[:32], "1") == list(range(32))


def test_sample_covers_outer_and_inner_parameters() -> None:
    remaining = kept_of_function(CASES, "1764000000")
    assert len(remaining) == 32
    assert len({position // 40 for position in remaining}) == 32  # of 50 outer values
    assert len({position % 40 for position in remaining}) >= 16  # of 40 inner values


def test_sample_repeats_by_seed_and_moves_on() -> None:
    assert kept_of_function(CASES, "7") == kept_of_function(CASES, "7")
    assert not set(kept_of_function(CASES, "7")) & set(kept_of_function(CASES, "8"))
    assert kept_of_function(CASES, "0.1.0") == kept_of_function(CASES, "0.1.0")


@pytest.mark.parametrize(("share", "count"), [(0.0, 32), (0.04, 25), (0.4, 2), (0.9, 1)])
def test_successive_seeds_cover_every_case(share: float, count: int) -> None:
    cases, seconds = CASES[:101], share * sampling.MAX_SECONDS
    assert len(kept_of_function(cases, "5", seconds)) == count
    seeds = range(5, 5 + -(-len(cases) // count))
    assert {position for seed in seeds for position in kept_of_function(cases, str(seed), seconds)} == set(range(101))


def test_functions_of_little_time_run_whole() -> None:
    most = sampling.MAX_SECONDS_WHOLE / 50
    assert kept_of_function(CASES[:50], "5", most) == list(range(50))
    assert len(kept_of_function(CASES[:51], "5", most)) < 50


def test_slow_cases_take_turns() -> None:
    samples = [kept_of_function(CASES[:7], str(seed), 2.5 * sampling.MAX_SECONDS) for seed in range(5, 5 + 3 * 7)]
    assert sorted(map(len, samples)) == [0] * 14 + [1] * 7
    assert {position for sample in samples for position in sample} == set(range(7))


def test_a_sample_draws_few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "is_sampled", True)
    assert (sampling.drawn(150), sampling.drawn(8)) == (25, 8)
    monkeypatch.setattr(sampling, "is_sampled", False)
    assert sampling.drawn(150) == 150


def test_sample_leaves_full_tests_out() -> None:
    cases = ["tests/a.py::test_b[1]", "tests/a.py::test_c", "tests/a.py::test_b[2]"]
    assert sample(cases, "1", [False, False, True], {}) == [True, True, False]


def test_shards_are_read() -> None:
    assert shard_of("2/4") == (2, 4)
    for text in ("", "0/4", "5/4", "2", "a/b", "-1/4"):
        with pytest.raises(ValueError, match="a shard is i/n"):
            shard_of(text)


def test_times_are_medians_of_functions() -> None:
    rows = [("test_b[1]", 3.0), ("test_b[2]", 0.1), ("test_b[3]", 0.2), ("test_c", 0.01)]
    cases = "".join(f'<testcase classname="tests.x.test_a" name="{name}" time="{time}"/>' for name, time in rows)
    assert times_of(f"<testsuites><testsuite>{cases}</testsuite></testsuites>") == {
        "tests/x/test_a.py::test_b": 0.2,
        "tests/x/test_a.py::test_c": 0.01,
    }


def test_recorded_times_are_of_functions_that_exist() -> None:
    functions = set()
    for path in sorted((sampling.ROOT / "tests").rglob("test_*.py")):
        names = re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        functions |= {f"{path.relative_to(sampling.ROOT).as_posix()}::{name}" for name in names}
    assert sorted(seconds_of_cases().keys() - functions) == []


FILE = """
import pytest

@pytest.mark.parametrize("x", range(100))
def test_many(x): pass

@pytest.mark.full
def test_full(): pass

def test_one(): pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nmarkers = full\n numbers\n")
    pytester.makeconftest((sampling.ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(test_cases=FILE)
    return pytester


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        ((), 33),
        (("--sample=3",), 33),
        (("--sample=3", "--rest"), 69),
        (("--all",), 102),
        (("-k", "many"), 100),
        (("test_cases.py::test_full",), 1),
        (("test_cases.py::test_many",), 100),
    ],
)
def test_options_choose_cases(run: pytest.Pytester, options: tuple[str, ...], passed: int) -> None:
    result = run.runpytest(*options)
    result.assert_outcomes(passed=passed)
    result.stdout.fnmatch_lines(["cases: *"])


@pytest.mark.full
def test_shards_together_have_every_case_once(run: pytest.Pytester) -> None:
    counts = [run.runpytest("--all", f"--shard={part}/3").parseoutcomes()["passed"] for part in (1, 2, 3)]
    assert sum(counts) == 102
    assert min(counts) > 10


def test_options_that_contradict_are_an_error(run: pytest.Pytester) -> None:
    assert "--all keeps every case" in run.runpytest("--all", "--sample=3").stderr.str()
    assert "a shard is i/n" in run.runpytest("--shard=4/3").stderr.str()


# The tests of what changed

FEW = (
    "tests/ops/test_activation.py",
    "tests/ops/test_pooling.py",
    "tests/passes/test_passes.py",
    "tests/lowering/test_traps.py",
    "tests/project/test_sampling.py",
)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `quick` know a few test files: reading all of them takes seconds."""
    files = {path: quick.modules_named(sampling.ROOT / path) for path in FEW}
    monkeypatch.setattr(quick, "test_files", lambda: files)


@pytest.mark.usefixtures("few")
def test_quick_finds_tests_that_use_a_file() -> None:
    assert quick.tests_of("ops/activation.py")[0] == "tests/ops/test_activation.py"
    assert "tests/passes/test_passes.py" not in quick.tests_of("ops/pooling.py")
    assert quick.tests_of("tests/project/test_sampling.py") == ["tests/project/test_sampling.py"]


@pytest.mark.usefixtures("few")
def test_quick_finds_tests_of_importing_files_and_tables() -> None:
    assert "tests/passes/test_passes.py" in quick.tests_of("graphcore/passes/folding.py")
    assert "tests/lowering/test_traps.py" in quick.tests_of("runtime/lowering/targets/traps.json")
    assert quick.tests_of("tools/kernel_probe/probes/floats.py") == ["tests/lowering/test_traps.py"]


@pytest.mark.usefixtures("few")
def test_quick_has_nothing_for_an_unknown_file() -> None:
    assert quick.tests_of("x" * 9 + ".none") == []
    assert quick.chosen([]) == ([], [])


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of packages that tests import
def test_quick_stays_within_its_time() -> None:
    runs, rest = quick.chosen(["graphcore/types/dtypes.py"])
    assert sum(map(quick.seconds_of, runs)) <= quick.MAX_SECONDS
    assert rest
    assert not set(runs) & set(rest)
