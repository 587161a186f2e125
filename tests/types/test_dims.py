"""The dims of graphcore.dims: one object a value, normal forms that mean what Python means, errors with their text."""

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graphcore.types.dims import Dim

A, B, C = Dim("a"), Dim("b"), Dim("c")
NAME_HELP = (
    "a name has letters, digits and _ . : / and does not start with a digit; "
    "an expression looks like '(a - 1) // 2', with spaces around - and //"
)


class Pair(NamedTuple):
    """An expression twice: as a Dim, and as what Python computes for given sizes."""

    dim: Dim
    python: Callable[[dict[str, int]], int]

    def at(self, sizes: dict[str, int]) -> int:
        """Return Python's result; drop examples that divide by zero, which dims assume not to happen."""
        try:
            return self.python(sizes)
        except ZeroDivisionError:
            assume(False)
            raise


OPERATIONS: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[int, int], int]]] = {
    "+": (lambda x, y: x + y, lambda x, y: x + y),
    "-": (lambda x, y: x - y, lambda x, y: x - y),
    "*": (lambda x, y: x * y, lambda x, y: x * y),
    "//": (lambda x, y: x // y, lambda x, y: x // y),
    "%": (lambda x, y: x % y, lambda x, y: x % y),
    "ceildiv": (lambda x, y: x.ceildiv(y), lambda x, y: -(-x // y)),
    "max": (Dim.maximum, max),
    "min": (Dim.minimum, min),
}


def name_pair(name: str) -> Pair:
    return Pair(Dim(name), lambda sizes: sizes[name])


def number_pair(number: int) -> Pair:
    return Pair(Dim(0) + number, lambda sizes: number)


def joined(left: Pair, op: str, right: Pair) -> Pair:
    symbolic, concrete = OPERATIONS[op]
    try:
        dim = symbolic(left.dim, right.dim)
    except (ZeroDivisionError, ValueError) as error:
        assume(False)
        raise AssertionError from error
    return Pair(dim, lambda sizes: concrete(left.python(sizes), right.python(sizes)))


leaves = st.one_of(st.sampled_from("abc").map(name_pair), st.integers(-6, 12).map(number_pair))
pairs = st.recursive(
    leaves, lambda inner: st.builds(joined, inner, st.sampled_from(list(OPERATIONS)), inner), max_leaves=8
)
polynomials = st.recursive(
    leaves, lambda inner: st.builds(joined, inner, st.sampled_from(["+", "-", "*"]), inner), max_leaves=5
)
sizes_of_names = st.fixed_dictionaries({name: st.integers(0, 30) for name in "abc"})


# What the normal form means.
@given(pairs, sizes_of_names)
def test_evaluate_of_the_normal_form_is_what_python_computes(pair: Pair, sizes: dict[str, int]) -> None:
    expected = pair.at(sizes)
    assert pair.dim.evaluate(sizes) == expected


@given(pairs, sizes_of_names)
def test_substitute_with_all_sizes_is_evaluate(pair: Pair, sizes: dict[str, int]) -> None:
    expected = pair.at(sizes)
    assert pair.dim.substitute(sizes) == expected


@given(pairs, polynomials, sizes_of_names)
def test_substitute_with_an_expression_is_evaluate_with_its_size(
    pair: Pair, inner: Pair, sizes: dict[str, int]
) -> None:
    size = inner.at(sizes)
    assume(size >= 0)
    expected = pair.at(sizes | {"a": size})
    try:
        replaced = pair.dim.substitute({"a": inner.dim})
    except ValueError as error:
        assume(not any(text in str(error) for text in ("terms", "cannot be", "too many characters")))
        raise
    except ZeroDivisionError:
        assume(False)
        raise
    assert replaced.evaluate(sizes) == expected


@given(pairs, sizes_of_names)
def test_lower_bound_is_never_above_the_size(pair: Pair, sizes: dict[str, int]) -> None:
    bound = pair.dim.lower_bound
    assert bound is None or bound <= pair.at(sizes)


@given(pairs, pairs, sizes_of_names)
def test_comparison_when_decided_is_that_of_the_sizes(x: Pair, y: Pair, sizes: dict[str, int]) -> None:
    left, right = x.at(sizes), y.at(sizes)
    questions: list[tuple[Callable[[], bool], bool]] = [
        (lambda: x.dim < y.dim, left < right),
        (lambda: x.dim <= y.dim, left <= right),
        (lambda: x.dim > y.dim, left > right),
        (lambda: x.dim >= y.dim, left >= right),
    ]
    for symbolic, concrete in questions:
        try:
            answer = symbolic()
        except TypeError:
            continue
        assert answer is concrete


@given(pairs)
def test_dim_of_str_is_the_same_object(pair: Pair) -> None:
    assert Dim(str(pair.dim)) is pair.dim


@given(pairs)
def test_eval_of_repr_is_the_same_object(pair: Pair) -> None:
    assert eval(repr(pair.dim), {"Dim": Dim}) is pair.dim


@given(pairs)
def test_pickle_and_copy_give_the_same_object(pair: Pair) -> None:
    assert pickle.loads(pickle.dumps(pair.dim)) is pair.dim
    assert copy.copy(pair.dim) is pair.dim
    assert copy.deepcopy([pair.dim])[0] is pair.dim


@given(pairs)
def test_hash_is_that_of_what_the_dim_equals(pair: Pair) -> None:
    same = pair.dim.value if pair.dim.value is not None else str(pair.dim)
    assert pair.dim == same
    assert hash(pair.dim) == hash(same)
    assert {same: 1}[pair.dim] == 1  # type: ignore[index]  # this is the point


@given(pairs)
def test_parameters_are_the_names_that_evaluate_needs(pair: Pair) -> None:
    assert pair.dim.parameters <= {"a", "b", "c"}
    assert pair.dim.is_static == (not pair.dim.parameters)


# Laws.
@given(pairs, pairs)
def test_sum_product_max_min_when_swapped_are_the_same_object(x: Pair, y: Pair) -> None:
    for op in "+", "*", "max", "min":
        assert joined(x, op, y).dim is joined(y, op, x).dim


@given(pairs, pairs, pairs)
def test_sum_and_product_when_regrouped_are_the_same_object(x: Pair, y: Pair, z: Pair) -> None:
    for op in "+", "*":
        assert joined(joined(x, op, y), op, z).dim is joined(x, op, joined(y, op, z)).dim


@given(pairs, pairs, pairs)
def test_product_distributes_over_sum(x: Pair, y: Pair, z: Pair) -> None:
    assert joined(joined(x, "+", y), "*", z).dim is joined(joined(x, "*", z), "+", joined(y, "*", z)).dim


@given(st.lists(st.sampled_from([A, B, C, A + 1, A - 2, Dim(3), 2 * B]), min_size=3, max_size=3))
def test_max_and_min_when_regrouped_are_the_same_object(dims: list[Dim]) -> None:
    x, y, z = dims
    for extreme in Dim.maximum, Dim.minimum:
        assert extreme(extreme(x, y), z) is extreme(x, extreme(y, z))


@given(pairs)
def test_neutral_and_absorbing_operands(pair: Pair) -> None:
    x = pair.dim
    assert x + 0 is x
    assert x * 1 is x
    assert x // 1 is x
    assert x - x is Dim(0)
    assert x * 0 is Dim(0)
    assert (-x) * -1 is x
    assert Dim.maximum(x, x) is x
    assert Dim.minimum(x, x) is x
    if x.value != 0:
        assert x // x is Dim(1)
        assert x % x is Dim(0)


@given(polynomials, polynomials)
def test_floordiv_when_exact_gives_the_factor_back(x: Pair, y: Pair) -> None:
    assume(y.dim.value != 0)
    assert joined(x, "*", y).dim // y.dim is x.dim


@given(st.integers(-50, 50), st.integers(-50, 50).filter(bool))
def test_arithmetic_of_static_dims_is_that_of_python(x: int, y: int) -> None:
    left, right = Dim(0) + x, Dim(0) + y
    for dim, number in [
        (left + right, x + y), (left - y, x - y), (x * right, x * y), (left // right, x // y), (x // right, x // y),
        (left % y, x % y), (x % right, x % y), (-left, -x), (left.ceildiv(y), -(-x // y)),
    ]:  # fmt: skip
        assert dim.value == number


# Simplification, example by example.
@pytest.mark.parametrize(
    ("dim", "same"),
    [
        ((A + B) * 2, A * 2 + B * 2),
        ((4 * A + 2) // 2, 2 * A + 1),
        ((4 * A + 3) // 4, A),
        ((A * B) // A, B),
        ((A * B + A) // (2 * A), (B + 1) // 2),
        ((A * B + B) // (A + 1), B),
        ((2 * A + 1) // 4, A // 2),
        (A // 2 // 3, A // 6),
        ((A // 2 + 3) // 4, (A + 6) // 8),
        ((A + 3) // -1, -A - 3),
        (-(-A // 2), (A + 1) // 2),
        (A.ceildiv(2), (A + 1) // 2),
        (A.ceildiv(B), (A - 1) // B + 1),
        (A // (A + 1), Dim(0)),
        (A % 1, Dim(0)),
        ((4 * A + 3) % 4, Dim(3)),
        (Dim.maximum(A, 0), A),
        (Dim.maximum(-1, A), A),
        (Dim.maximum(A + 3, 2), A + 3),
        (Dim.maximum(A // 2, 0), A // 2),
        (Dim.maximum(A, A - 1), A),
        (Dim.maximum(A % 4, 0), A % 4),
        (Dim.maximum(A % B, B), B),
        (Dim.maximum(Dim.maximum(A, B), A), Dim.maximum(A, B)),
        (Dim.maximum("a", "b"), Dim.maximum(B, A)),
        (Dim.minimum(A, A + B), A),
        (Dim.minimum(A % 4, 3), A % 4),
        (Dim.minimum(7, 3), Dim(3)),
    ],
)
def test_simplification_gives_the_same_object(dim: Dim, same: Dim) -> None:
    assert dim is same


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (Dim(4), "4"),
        (Dim(2) - Dim(4), "-2"),
        (A, "a"),
        (A * 2 + 1, "2 * a + 1"),
        (B * A - 1, "a * b - 1"),
        (4 - A, "4 - a"),
        (-A - B, "-a - b"),
        (A * A * B, "a * a * b"),
        ((A + 1) // 2, "(a + 1) // 2"),
        (A * B // 3, "a * b // 3"),
        (A // (B + C), "a // (b + c)"),
        (A // B // C, "a // b // c"),
        ((A + 1) // 2 * 3, "3 * ((a + 1) // 2)"),
        (-((A + 1) // 2), "-((a + 1) // 2)"),
        (Dim.maximum(0, A - 1), "max(a - 1, 0)"),
        (Dim.minimum(Dim.minimum(C, 9), A), "min(a, c, 9)"),
        (Dim.dynamic(), "?"),
    ],
)
def test_str_is_written_for_people(dim: Dim, text: str) -> None:
    assert str(dim) == text
    assert f"{dim}" == text
    assert Dim(text) is dim


def test_repr_says_how_to_make_the_dim() -> None:
    assert repr(Dim(4)) == "Dim(4)"
    assert repr(A * 2 + 1) == "Dim('2 * a + 1')"
    assert repr(Dim(2) - 4) == "Dim('-2')"
    assert repr(Dim.dynamic()) == "Dim.dynamic()"


# Making dims.
def test_constructor_when_values_are_equal_gives_one_object() -> None:
    for value in 0, 4, 1024, 1025, 2**70, "batch", "a.b:0/c", "2 * a + 1", "?":
        dim = Dim(value)
        assert Dim(value) is dim
    assert Dim(A) is A
    assert Dim(np.int64(4)) is Dim(4)
    assert Dim(np.str_("a")) is A
    assert Dim("a*2 + 1") is Dim("1+2*a")


@pytest.mark.parametrize("name", ["batch", "größe", "_x", "s0", "a.b", "unk__12", "x:0", "layer/out.1", "max"])
def test_constructor_when_given_a_name_makes_a_named_dim(name: str) -> None:
    dim = Dim(name)
    assert dim.name == name
    assert dim == name
    assert dim.is_symbolic
    assert Dim(str(dim + 1)) is dim + 1


@pytest.mark.parametrize(
    "text",
    ["", " ", "batch size", "batch-size", "unk__12-a", "4a", "a//b", "http://x", "a +", "+ a", "(a", "a)", "max(a)",
     "max(a, )", "a b", "a\n", "a ** 2", "a!", "1.5", "floor(a)", "a -1"],
)  # fmt: skip
def test_constructor_when_text_is_not_a_dim_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid dim") as caught:
        Dim(text)
    assert str(caught.value) == f"{text.rstrip(' ')!r} is not a valid dim: {NAME_HELP}"


def test_constructor_when_text_is_hostile_is_refused_soon() -> None:
    for text, why in [
        ("(" * 3000, "it is nested more than 64 levels deep"),
        ("-" * 3000 + "a", "it is nested more than 64 levels deep"),
        ("a" * 5000, "it is longer than 4096 characters"),
        ("a // 0", "it divides by zero"),
        ("a % (1 - 1)", "it divides by zero"),
    ]:
        with pytest.raises(ValueError, match="is not a valid dim") as caught:
            Dim(text)
        shown = text if len(text) <= 60 else text[:57] + "..."
        assert str(caught.value) == f"{shown!r} is not a valid dim: {why}"
    with pytest.raises(ValueError, match=r"^dim has too many terms: product of sums of 512 and 2 terms$"):
        Dim(" * ".join(f"(a{i} + b{i})" for i in range(40)))
    with pytest.raises(ValueError, match=r"^dim has too many factors: \d+ in a product, at most 10000$"):
        Dim("(a+b)*" * 300 + "1")
    with pytest.raises(ValueError, match=r"^a dim cannot have a max of more than 16 arguments$"):
        Dim(f"max({', '.join(f'a{i}' for i in range(40))})")
    with pytest.raises(ValueError, match=r"^the text of a dim has too many characters: \d+, at most 100000$"):
        Dim(" % ".join(f"(a{i} + b{i})" for i in range(16)))


def test_constructor_when_negative_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^-1 is not a valid dim: a size is >= 0 \(Dim.dynamic\(\) if it is unknown\)$"
    ):
        Dim(-1)


@pytest.mark.parametrize("value", [True, np.True_, 4.0, None, [4], b"a"])
def test_constructor_when_the_type_is_wrong_is_refused(value: Any) -> None:
    with pytest.raises(TypeError) as caught:
        Dim(value)
    if not isinstance(value, np.bool_):  # NumPy refuses that one in its own words
        expected = "is not a valid dim: a dim is an int >= 0, a name, an expression of those, or Dim.dynamic()"
        assert str(caught.value) == f"{value!r} {expected}"


def test_expression_is_freed_when_it_is_unreferenced() -> None:
    value = weakref.ref(Dim("only_here") + 1)
    gc.collect()
    assert value() is None


def test_constructor_when_called_from_many_threads_gives_one_object() -> None:
    results: list[list[Dim]] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        results.append([Dim(f"t{i}") * 2 + i for i in range(200)])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(x is y for dims in results for x, y in zip(dims, results[0], strict=True))


# Properties.
@pytest.mark.parametrize(
    ("dim", "kind", "name", "value", "parameters", "lower_bound"),
    [
        (Dim(4), "static", None, 4, set(), 4),
        (A, "symbolic", "a", None, {"a"}, 0),
        (A * B + 3, "symbolic", None, None, {"a", "b"}, 3),
        (A - 4, "symbolic", None, None, {"a"}, -4),
        (4 - A, "symbolic", None, None, {"a"}, None),
        ((A - 4) // 3, "symbolic", None, None, {"a"}, -2),
        (A % 4, "symbolic", None, None, {"a"}, 0),
        (A % B, "symbolic", None, None, {"a", "b"}, 0),
        (Dim.maximum(A - B, 2), "symbolic", None, None, {"a", "b"}, 2),
        (5 - Dim.minimum(A, 3), "symbolic", None, None, {"a"}, 2),
        (Dim.dynamic(), "dynamic", None, None, set(), None),
    ],
)
def test_properties_by_kind(
    dim: Dim, kind: str, name: str | None, value: int | None, parameters: object, lower_bound: int | None
) -> None:
    assert (dim.is_static, dim.is_symbolic, dim.is_dynamic) == (kind == "static", kind == "symbolic", kind == "dynamic")
    assert (dim.name, dim.value, dim.parameters, dim.lower_bound) == (name, value, parameters, lower_bound)


def test_equality_with_numbers_and_text() -> None:
    assert Dim(4) == 4
    assert Dim(4) == np.int64(4)
    assert np.int64(4) == Dim(4)
    assert Dim("batch") == "batch"
    assert A * 2 + 1 == "2 * a + 1"
    assert Dim(4) != "4"
    assert Dim(4) != 4.5
    assert A != 4
    assert A != B
    assert A != None  # noqa: E711  # this is the point
    mixed: object = ("a", 4)
    assert (A, Dim(4)) == mixed


def test_dynamic_absorbs_everything() -> None:
    unknown = Dim.dynamic()
    for dim in [
        unknown + 1, 1 - unknown, unknown * 0, unknown // 2, A // unknown, unknown % B, -unknown, unknown - unknown,
        Dim.maximum(unknown, 3), Dim.minimum(A, unknown), unknown.ceildiv(2), unknown.substitute({"a": 1}),
        A.substitute({"a": unknown}), Dim("? + 1"), pickle.loads(pickle.dumps(unknown)),
    ]:  # fmt: skip
        assert dim is unknown


def test_arithmetic_with_numpy_integers() -> None:
    three: Any = np.int64(3)
    assert three + A is A + 3
    assert A * three is 3 * A
    assert A.ceildiv(three) is (A + 2) // 3


@pytest.mark.parametrize("other", [1.5, True, "b", None])
def test_arithmetic_with_what_is_not_a_size_is_refused(other: Any) -> None:
    operations: list[Callable[[], object]] = [
        lambda: A + other, lambda: other + A, lambda: A - other, lambda: other - A, lambda: A * other,
        lambda: A // other, lambda: other // A, lambda: other > A, lambda: other <= A,
    ]  # fmt: skip
    for operation in operations:
        with pytest.raises(
            TypeError, match=r"unsupported operand|can only concatenate|not supported between|is not static"
        ):
            operation()


def test_division_by_static_zero_is_refused() -> None:
    operations: list[Callable[[], Dim]] = [
        lambda: A // 0, lambda: A % 0, lambda: A.ceildiv(0), lambda: 4 // (A - A)
    ]  # fmt: skip
    for operation in operations:
        with pytest.raises(ZeroDivisionError, match=r"^dim '(a|-a|4)' divided by zero$"):
            operation()


def test_dim_when_changed_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"^a Dim is immutable$"):
        A.name = "b"
    with pytest.raises(AttributeError, match=r"^a Dim is immutable$"):
        del A.name


@pytest.mark.parametrize(
    ("dim", "bound"),
    [
        (A // 2 * 2 - A, -1),
        (A // 4 * 4 - A, -3),
        (A - A // 4 * 4, 0),
        (Dim.maximum(A - 3, B // 2), 0),
        (Dim.maximum(A, B) - A, 0),
        (A // (Dim.minimum(B, 4) - 5) + 1, None),
        (A - Dim.maximum(A, B), None),
        (Dim.minimum(A - 4, 0) * B, None),
        ((A + 100) % 1000 * Dim.minimum(B - 4, 0), -3996),
        (Dim.maximum(B, 100_000) * Dim.minimum(C - 4, 0), None),
    ],
)
def test_lower_bound_when_terms_are_bound_together(dim: Dim, bound: int | None) -> None:
    assert dim.lower_bound == bound


def test_lower_bound_when_both_factors_may_be_negative_is_not_their_product() -> None:
    bound = (Dim.minimum(A - 4, 0) * Dim.minimum(B - 4, 0)).lower_bound
    assert bound is None or bound <= 0


def test_floordiv_when_the_quotient_may_be_one_is_kept() -> None:
    assert (Dim.minimum(A, B) // B).evaluate({"a": 5, "b": 5}) == 1


def test_floordiv_when_the_divisor_may_be_negative_is_that_of_python() -> None:
    assert (-A // (B - 4)).evaluate({"a": 1, "b": 0}) == -1 // -4


# Numbers and comparisons.
def test_static_dim_is_usable_as_int() -> None:
    assert int(Dim(4)) == 4
    assert list(range(Dim(2))) == [0, 1]
    assert "abc"[Dim(1)] == "b"
    assert bool(Dim(1))
    assert not Dim(0)


@pytest.mark.parametrize("dim", [A, A + 1, Dim.dynamic()])
def test_dim_that_is_not_static_is_not_a_number(dim: Dim) -> None:
    expected = "only when the graph runs"
    for use in int, range:
        with pytest.raises(TypeError) as caught:
            use(dim)
        assert str(caught.value) == (
            f"dim {str(dim)!r} is not static: its size is known {expected}; "
            "compute it in the graph with ops.shape_of(x)"
        )
    with pytest.raises(TypeError) as caught:
        bool(dim)
    assert str(caught.value) == f"dim {str(dim)!r} is not static: whether it is 0 is known {expected}"


def test_comparison_when_provable_is_a_bool() -> None:
    assert Dim(3) < 4
    assert not Dim(4) < Dim(4)
    assert Dim(4) <= 4
    assert A >= 0
    assert not A < 0
    assert A < A + 1
    assert A + B >= B
    assert A % 4 <= 3
    assert A // 2 * 2 <= A
    assert Dim.maximum(A, B) >= A
    assert Dim.minimum(A, B) <= A


@pytest.mark.parametrize(
    ("ask", "question"),
    [
        (lambda: A < 4, "a < 4"),
        (lambda: A > 4, "a > 4"),
        (lambda: A <= B, "a <= b"),
        (lambda: A - 1 >= 0, "a - 1 >= 0"),
        (lambda: Dim.dynamic() >= 0, "? >= 0"),
    ],
)
def test_comparison_when_not_provable_is_refused(ask: Callable[[], bool], question: str) -> None:
    with pytest.raises(TypeError) as caught:
        ask()
    assert str(caught.value) == f"{question} cannot be decided: it depends on the sizes when the graph runs"


# Substitution.
def test_substitute_replaces_all_names_at_once() -> None:
    assert (A - B).substitute({"a": B, "b": A}) is B - A
    assert (A * B).substitute({A: 4, "b": "c + 1"}) is 4 * C + 4  # type: ignore[arg-type]  # mixed keys work all the same
    assert (A + 1).substitute({"z": 4}) is A + 1
    assert Dim.maximum(A - 3, B // 2).substitute({A: 10, B: 4}) is Dim(7)
    assert Dim(4).substitute({"a": 1}) is Dim(4)


def test_substitute_when_a_key_or_value_is_wrong_says_so() -> None:
    with pytest.raises(ValueError, match=r"^substitute: only names can be replaced, 'a \+ 1' is not a plain name$"):
        A.substitute({A + 1: 4})
    with pytest.raises(ValueError, match=r"^dim 'a' cannot be -1: a size is >= 0$"):
        A.substitute({"a": -1})


def test_evaluate_when_a_size_is_missing_or_wrong_says_so() -> None:
    assert (A * B).evaluate({"a": np.int8(100), "b": np.int8(100), "z": 1}) == 10_000  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"^evaluate: the size of dim 'b' is missing$"):
        (A + B).evaluate({"a": 1})
    with pytest.raises(ValueError, match=r"^dim 'a' cannot be -1: a size is >= 0$"):
        (A + 1).evaluate({"a": -1})
    with pytest.raises(TypeError, match=r"^evaluate: the size of a dynamic dim \(\?\) is unknown$"):
        Dim.dynamic().evaluate({})
    with pytest.raises(ZeroDivisionError):
        (A // B).evaluate({"a": 1, "b": 0})
