"""Random states that differ between two runs."""

from __future__ import annotations

from probe_diagnosis.conditions.file import RandomDraw, RandomSample, RunConditions
from probe_diagnosis.conditions.random_states import DrawingCalls, RandomDifference, Since, find_random_differences


def run(states: str, draws: str = "", seed: int | None = None, name: str = "torch") -> RunConditions:
    """Return conditions: the states at start, forward and end, and draws such as ``dropout:a>b``."""
    seeds = {} if seed is None else {name: seed}
    points = zip(("start", "forward", "end"), states.split())
    samples = tuple(RandomSample(point, {name: state}, seeds) for point, state in points)
    found = []
    for text in draws.split():
        op, _, change = text.partition(":")
        found.append(RandomDraw(op, name, *change.split(">")))
    return RunConditions(samples=samples, draws=tuple(found))


def difference(target: RunConditions, golden: RunConditions) -> RandomDifference | None:
    return next(find_random_differences(target, golden), None)


def test_equal_states_have_no_difference() -> None:
    assert difference(run("a a b", "x:a>b", 1), run("a a b", "x:a>b", 1)) is None


def test_another_seed_from_the_start() -> None:
    found = difference(run("a a b", "x:a>b", 1), run("c c d", "x:c>d", 2))
    assert found is not None and found.is_seed and found.since is Since.START and found.seeds == (1, 2)


def test_states_that_are_seeded_before_the_model_is_called_are_equal() -> None:
    assert difference(run("q a b", "x:a>b", 1), run("r a b", "x:a>b", 1)) is None


def test_unused_states_are_no_difference() -> None:
    assert difference(run("a a a"), run("b b b")) is None
    assert difference(run("a a a", seed=1), run("b b b", seed=2)) is not None


def test_a_draw_between_calls_that_was_not_recorded() -> None:
    found = difference(run("a a e", "x:a>b y:c>e", 1), run("a a d", "x:a>b y:b>d", 1))
    assert found is not None and (found.since, found.op, found.after) == (Since.CALL, "y", "x")


def test_a_call_of_one_run_that_draws() -> None:
    found = difference(run("a a e", "x:a>b n:b>c y:c>e", 1), run("a a d", "x:a>b y:b>d", 1))
    assert found is not None and (found.since, found.op, found.only_in) == (Since.DRAW, "n", "target")
    found = difference(run("a a d", "x:a>b y:b>d", 1), run("a a e", "x:a>b n:b>c y:c>e", 1))
    assert found is not None and (found.op, found.only_in) == ("n", "golden")


def test_a_call_that_draws_another_amount() -> None:
    found = difference(run("a a e", "x:a>c y:c>e", 1), run("a a d", "x:a>b y:b>d", 1))
    assert found is not None and (found.since, found.op, found.only_in) == (Since.DRAW, "x", "")


def test_states_that_differ_at_the_end_only() -> None:
    found = difference(run("a a c", seed=1), run("a a b", seed=1))
    assert found is not None and found.since is Since.END


def test_calls_that_drew_from_another_state() -> None:
    draws = DrawingCalls(run("a a b", "x:a>b y:b>c"), run("a a b", "x:a>b z:d>c"))
    assert draws.find_differing_generators("x", "x") is None
    assert draws.find_differing_generators("y", "z") == ("torch", "torch")
    assert draws.find_differing_generators("y", "missing") is None
    assert list(draws.iterate_ops()) == ["x", "y"]


def test_calls_that_drew_from_generators_of_two_devices() -> None:
    draws = DrawingCalls(run("a a b", "x:a>b", name="cuda:0"), run("a a b", "x:a>b"))
    assert draws.find_differing_generators("x", "x") == ("cuda:0", "torch")


def test_a_seed_that_is_set_within_the_step_replaces_the_state_at_its_start() -> None:
    def started(state: str, seed: int, end: str) -> RunConditions:
        samples = (
            RandomSample("start", {"torch": state}, {"torch": seed}),
            RandomSample("end", {"torch": end}, {"torch": 0}),
        )
        return RunConditions(samples=samples)

    assert difference(started("a", 11, "c"), started("b", 12, "c")) is None
    found = difference(started("a", 11, "c"), started("b", 12, "d"))
    assert found is not None and not found.is_seed and found.since is Since.END


def test_a_state_that_differs_before_the_first_draw_differs_when_the_model_is_called() -> None:
    found = difference(run("a b c", "x:b>c", 1), run("a d e", "x:d>e", 1))
    assert found is not None and found.since is Since.FORWARD
