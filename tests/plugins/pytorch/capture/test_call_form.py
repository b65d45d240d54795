"""The form of a call, read from the instruction that made it."""

from __future__ import annotations

import asyncio
import functools
import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest
from probe_pytorch.capture.call_form import CallForm, call_form, is_reflected, restore_arguments

FORMS: list[CallForm | None] = []


def see(*_: Any, **__: Any) -> CallForm | None:
    """The form of the call that this is."""
    found = call_form(sys._getframe(1))
    FORMS.append(found)
    return found


class Thing:
    see = staticmethod(see)

    def method(self, *_: Any, **__: Any) -> CallForm | None:
        return call_form(sys._getframe(1))

    @classmethod
    def of_class(cls, *_: Any, **__: Any) -> CallForm | None:
        return call_form(sys._getframe(1))


class Heir(Thing):
    def method(self, *_: Any, **__: Any) -> CallForm | None:
        return super().method(1, 2, key=3)


def form(positional: int, *keywords: str) -> CallForm:
    return CallForm(positional, keywords)


THING, A, K = Thing(), (1, 2), {"k": 1}

CALLS: dict[str, tuple[Callable[[], Any], CallForm | None]] = {
    "nothing": (lambda: see(), form(0)),
    "by position": (lambda: see(1, "x", None), form(3)),
    "by keyword": (lambda: see(a=1, b=2), form(0, "a", "b")),
    "mixed": (lambda: see(1, b=2, a=3), form(1, "b", "a")),
    "a method": (lambda: THING.method(1, k=2), form(1, "k")),
    "a method of a class": (lambda: Thing.of_class(1, 2), form(2)),
    "a static method": (lambda: THING.see(1, k=2), form(1, "k")),
    "by way of the class": (lambda: Thing.method(THING, 1), form(2)),
    "of the base": (lambda: Heir().method(), form(2, "key")),
    "bound before": (lambda: (lambda f: f(1, k=2))(THING.method), form(1, "k")),
    "star": (lambda: see(*A), None),
    "two stars": (lambda: see(**K), None),
    "both": (lambda: see(0, *A, x=1, **K), None),
    "star of nothing": (lambda: see(1, *()), None),
    "in an argument": (lambda: see(see(1), k=see(2, x=3)), form(1, "k")),
    "in a comprehension": (lambda: [see(i, k=i) for i in range(2)][-1], form(1, "k")),
    "in a comprehension of a dict": (lambda: {i: see(i, i) for i in range(2)}[1], form(2)),
    "in a generator": (lambda: next(see(i, i, i) for i in range(2)), form(3)),
    "in a condition": (lambda: see(1) if see(1, 2) else see(1, 2, 3), form(1)),
    "in a text": (lambda: (f"{see(1, k=2)!r:>3}", FORMS[-1])[1], form(1, "k")),
    "assigned on the way": (lambda: (found := see(1, a=2), found)[1], form(1, "a")),
    "over lines": (
        lambda: see(
            1,
            2,
            key=3,
        ),
        form(2, "key"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "expected"), CALLS.values(), ids=CALLS)
def test_form(call: Callable[[], Any], expected: CallForm | None) -> None:
    for _ in range(3):
        assert call() == expected


def test_inner_calls_have_forms_of_their_own() -> None:
    FORMS.clear()
    see(see(1), see(1, 2, k=see()), *[see(k=1, m=2)])
    found, expected = FORMS, [form(1), form(0), form(2, "k"), form(0, "k", "m"), None]
    assert found == expected


def test_nested_functions_and_closures() -> None:
    def outer(x: int) -> Any:
        def inner() -> Any:
            return see(x, y=x)

        return [inner(), (lambda: see(x, x))(), see(x)]

    assert outer(1) == [form(1, "y"), form(2), form(1)]


def test_generators_coroutines_and_exceptions() -> None:
    def steps() -> Any:
        yield see(1)
        try:
            yield see(1, 2)
            raise ValueError
        except ValueError:
            yield see(a=1)
        finally:
            FORMS.append(see(b=1))

    async def later() -> Any:
        return see(1, k=2)

    FORMS.clear()
    assert list(steps()) == [form(1), form(2), form(0, "a")]
    assert FORMS[-1] == form(0, "b")
    assert asyncio.run(later()) == form(1, "k")


def test_calls_that_have_no_form() -> None:
    """Calls that no call instruction makes: a property, an operator, a with statement."""

    class Odd:
        @property
        def asked(self) -> Any:
            return call_form(sys._getframe(1))

        def __add__(self, other: Any) -> Any:
            return call_form(sys._getframe(1))

        def __getitem__(self, key: Any) -> Any:
            return call_form(sys._getframe(1))

        def __neg__(self) -> Any:
            return call_form(sys._getframe(1))

        def __enter__(self) -> Any:
            return call_form(sys._getframe(1))

        def __exit__(self, *_: Any) -> None:
            pass

    odd = Odd()
    with odd as entered:
        assert [odd.asked, odd + 1, odd[0], -odd, entered] == [None] * 5


def test_a_call_that_has_run_often() -> None:
    """The interpreter rewrites instructions that run often; keywords stay."""
    found = set()
    for number in range(200):
        found.add(see(number, key=number))
        found.add(THING.method(number))
    assert found == {form(1, "key"), form(1)}


def test_codes_that_come_and_go() -> None:
    """The form belongs to the code, not to its address, which a later one may have."""
    for number in range(300):
        keywords = "".join(f", k{i}={i}" for i in range(number % 4))
        names = tuple(f"k{i}" for i in range(number % 4))
        assert eval(f"see({', '.join('0' * (number % 5 + 1))}{keywords})", {"see": see}) == form(number % 5 + 1, *names)


def long_function(lines: list[str]) -> Callable[[], Any]:
    space: dict[str, Any] = {"see": see}
    exec("def long():\n" + "\n".join(f"    {line}" for line in lines), space)
    found: Callable[[], Any] = space["long"]
    return found


@pytest.mark.parametrize("count", [10, 300, 3000])
def test_long_functions(count: int) -> None:
    """Constants and jumps beyond 255 take prefixes, which are no instructions of their own."""
    lines = ["x = (" + ", ".join(f"'c{i}'" for i in range(count)) + ",)"] if count < 1000 else []
    lines += [f"x = {i}.5" for i in range(count)] if count >= 1000 else [f"v{i} = x" for i in range(count)]
    lines += [
        "for i in (1, 2):",
        "    found = see(x, 'last', key_of_a_long_function=x, other=i)",
        "return found",
    ]
    function = long_function(lines)
    assert function() == form(2, "key_of_a_long_function", "other")


@pytest.mark.parametrize(("positional", "keywords"), [(28, 0), (0, 14), (13, 6), (300, 0), (0, 300), (20, 20)])
def test_many_arguments(positional: int, keywords: int) -> None:
    """Those of a very long call are packed by the compiler, as with a star."""
    names = [f"name{i}" for i in range(keywords)]
    written = ", ".join([*map(str, range(positional)), *(f"{name}=1" for name in names)])
    expected = form(positional, *names) if positional + keywords < 30 else None
    assert long_function([f"return see({written})"])() == expected


# -- which side of an operator -----------------------------------------------------------------------------


class Operand:
    """Says on which side of an operator it was found to stand."""

    value = 2

    def __add__(self, other: Any) -> Any:
        return "right" if is_reflected(sys._getframe(1), self) else "left"

    __radd__ = __mul__ = __rmul__ = __add__

    def method(self) -> Operand:
        return self


X, G = Operand(), 2


def local(k: int) -> Any:
    x = X
    return [k * x, x * k, k + x.method(), x.method() + k, -k * x, x * -k]


def of_a_closure(k: int) -> Any:
    return (lambda: [k * X, X * k])()


def of_the_class() -> Any:
    return [X.value * X, X * X.value]


KEPT: list[Any] = []


def keep(side: Any, *, last: bool = False) -> Any:
    KEPT[:] = [side]
    return X


def of_an_attribute(holder: Any) -> list[Any]:
    """From Python 3.13 on, one instruction loads both variables."""
    x = X.method()
    y = keep(-1, last=True)
    _ = x * keep(y + holder.value)
    return KEPT


SIDES: dict[str, tuple[Callable[[], Any], Any]] = {
    "constants": (lambda: [2 * X, X * 2, -2.5 + X, X + -2.5], ["right", "left"] * 2),
    "a constant and a call": (lambda: [2 * X.method(), X.method() * 2], ["right", "left"]),
    "a constant and a list": (lambda: [2 * [X][0], [X][0] * 2], ["right", "left"]),
    "globals": (lambda: [G * X, X * G], ["right", "left"]),
    "locals": (lambda: local(3), ["left"] * 6),  # to ask a frame for them would keep them alive
    "closures": (lambda: of_a_closure(3), ["right", "left"]),
    "attributes": (of_the_class, ["right", "left"]),
    "an attribute of an argument": (lambda: of_an_attribute(Operand), ["left"]),
}


@pytest.mark.parametrize(("find", "expected"), SIDES.values(), ids=SIDES)
def test_sides_of_operators(find: Callable[[], Any], expected: Any) -> None:
    for _ in range(3):
        assert find() == expected


def test_sides_in_a_long_function() -> None:
    """Variables beyond the 255th take a prefix."""
    space: dict[str, Any] = {"x": X}
    lines = [*(f"v{i} = {i}.25" for i in range(300)), "k, y = 3, x",
             "return [k * y, y * k, 77777 * y, y * 77777, k * y.method()]"]  # fmt: skip
    exec("def long():\n" + "\n".join(f"    {line}" for line in lines), space)
    assert space["long"]() == ["left", "left", "right", "left", "left"]


# -- arguments as they were written ------------------------------------------------------------------------


def function(first: Any, second: Any = 2, third: Any = None, *, fourth: Any = 4) -> Any:
    """Hands itself over as torch's functions do: the tensors by position, the rest by keyword."""
    site = call_form(sys._getframe(1))
    return restore_arguments(function, site, False, (first,), {"second": second, "third": third, "fourth": fourth})


class Holder:
    def method(self, first: Any, second: Any = 2) -> Any:
        site = call_form(sys._getframe(1))
        return restore_arguments(Holder.method, site, True, (self, first), {"second": second})


NAMES = ("first", "second", "third", "fourth")


@pytest.mark.parametrize("positional", [0, 1, 2, 3])
def test_every_way_to_write_a_call(positional: int) -> None:
    """Any arguments by position, any of the others by keyword, in any order, defaults among them."""
    for count in range(len(NAMES) - positional + 1):
        for names in itertools.permutations(NAMES[positional:], count):
            if not positional and "first" not in names:
                continue
            for values in ((10, 20, 30, 40), (None, 2, None, 4)):
                args, keywords = values[:positional], {name: values[NAMES.index(name)] for name in names}
                written = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in keywords.items())])
                found = eval(f"function({written})", {"function": function})
                assert found == (args, keywords), written
                assert list(found[1]) == list(keywords)


def test_a_method_keeps_its_object() -> None:
    holder = Holder()
    assert holder.method(1) == ((holder, 1), {})
    assert holder.method(1, 5) == ((holder, 1, 5), {})
    assert holder.method(first=1, second=5) == ((holder,), {"first": 1, "second": 5})
    bound = holder.method
    assert bound(1, second=2) == ((holder, 1), {"second": 2})


def test_where_the_form_is_hidden_defaults_are_left_out() -> None:
    assert function(*(1,)) == ((1,), {})
    assert function(*(1, 5)) == ((1,), {"second": 5})
    assert function(1, **{"third": 7}) == ((1,), {"third": 7})
    assert function(*(1, 2, None), **{"fourth": 4}) == ((1,), {})
    assert Holder.method(*(THING, 1)) == ((THING, 1), {})


def test_a_wrapper_that_hands_on_hides_the_form() -> None:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    assert wrapper(1, third=3) == ((1,), {"third": 3})


@pytest.mark.parametrize(
    "call",
    [lambda: functools.partial(function, third=30)(1), lambda: functools.partial(function, 1)(third=30),
     lambda: functools.partial(function, third=30)(first=1), lambda: next(map(function, [1], [2], [30])),
     lambda: next(map(functools.partial(function, third=30), [1]))],
    ids=["partial", "partial by position", "partial by keyword", "map", "map of partial"],
)  # fmt: skip
def test_no_argument_is_lost_on_the_way_through_c(call: Callable[[], Any]) -> None:
    args, keywords = call()
    values = {**dict(zip(NAMES, args)), **keywords}
    assert values["first"] == 1 and values["third"] == 30


def test_functions_of_any_arguments_are_left_as_they_are() -> None:
    def free(*args: Any, **kwargs: Any) -> None:
        pass

    given = (1, 2), {"a": 3}
    for form_ in (None, form(1), form(0, "a", "b")):
        assert restore_arguments(free, form_, False, *given) == given
        assert restore_arguments(len, form_, False, *given) == given  # written in C
        assert restore_arguments(functools.partial(free), form_, False, *given) == given


def test_a_form_that_does_not_fit_changes_nothing() -> None:
    given = (1,), {"second": 3}
    for form_ in (form(1, "unknown"), form(0, "self"), form(4)):
        assert restore_arguments(function, form_, False, *given) == given
