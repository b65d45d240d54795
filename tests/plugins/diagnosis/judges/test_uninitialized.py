"""Values recorded before anything was computed: fresh memory, and memory about to be overwritten."""

from __future__ import annotations

from typing import Any

import pytest
from probe_diagnosis.collectives.calls import load_apis
from probe_diagnosis.judges.uninitialized import MAX_REMEMBERED_PAIRS, UninitializedJudge
from support.measuring import scalar_value, tensor_value

from probe_core.model import Kind, Level, Op, Pair, Row, Side, Slot, Statistics, Transfer, Value, Verdict

X, Y, Z = 1.5, 2.5, 3.5
FRESH = (1e22, -7.0)
"""Values of fresh memory in one run, and in the other."""
NULL = Value(Kind.NULL, "None", "None")

Sides = Any
"""A number that both sides hold, or a pair of numbers; a scalar, a null or another value as it is."""


def value(number: Any) -> Value:
    return number if isinstance(number, Value) else tensor_value(Statistics(*(float(number),) * 4))


def row(side: Side, path: str, sides: Sides, op: str = "op") -> Row:
    first, second = sides if type(sides) is tuple else (sides, sides)
    slots = (
        None if one is None else Slot(f"{op}.{side.value}.{path}", side, path, value(one)) for one in (first, second)
    )
    return Row(Pair(*slots), op, {}, Verdict(Level.PASS, ""))


def unset(
    finder: UninitializedJudge, op: str, *inputs: Sides, gives: Sides = (), rank: int = 0, **keywords: Sides
) -> list[str]:
    """The rows of a call that are found to hold nothing yet, as ``input.0`` or ``output.1``."""
    outputs = gives if isinstance(gives, list) else [gives] if gives != () else []
    rows = [row(Side.INPUT, str(place), sides) for place, sides in enumerate(inputs)]
    rows += [row(Side.INPUT, path.replace("__", "."), sides) for path, sides in keywords.items()]
    rows += [row(Side.OUTPUT, str(place), sides) for place, sides in enumerate(outputs)]
    found = finder.find_uninitialized(op, rows, rank)
    return [f"{rows[place].pair.side.value}.{(rows[place].pair[0] or rows[place].pair[1]).path}"  # type: ignore[union-attr]
            for place in sorted(found)]  # fmt: skip


@pytest.fixture
def finder() -> UninitializedJudge:
    return UninitializedJudge()


# -- memory is made --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    ["Torch.empty.0.forward", "Torch.empty_strided.3.forward", "Tensor.new_empty.0.forward",
     "Mint.empty_like.0.forward"],
)  # fmt: skip
def test_what_empty_gives_out_was_never_computed(finder: UninitializedJudge, op: str) -> None:
    assert unset(finder, op, scalar_value(4), gives=FRESH) == ["output.0"]


def test_the_input_of_empty_like_is_judged(finder: UninitializedJudge) -> None:
    assert unset(finder, "Torch.empty_like.0.forward", X, gives=FRESH) == ["output.0"]


def test_what_is_made_of_zeros_or_ones_is_judged(finder: UninitializedJudge) -> None:
    for name in ("zeros", "ones", "full", "arange", "randn"):
        assert unset(finder, f"Torch.{name}.0.forward", scalar_value(4), gives=X) == []


@pytest.mark.parametrize(
    "op",
    ["Torch.empty.0.backward", "Module.empty.Empty.forward.0", "Module.a.empty.forward.0", "empty.0.debug",
     "Torch.emptyish.0.forward", "forward", ""],
)  # fmt: skip
def test_names_that_only_look_like_it(finder: UninitializedJudge, op: str) -> None:
    assert unset(finder, op, gives=FRESH) == []


# -- memory is passed on ---------------------------------------------------------------------------


def test_what_only_passes_fresh_memory_on_is_not_judged(finder: UninitializedJudge) -> None:
    other = (3.0, 4.0)
    unset(finder, "Torch.empty.0.forward", gives=FRESH)
    assert unset(finder, "Tensor.view.0.forward", FRESH, scalar_value(-1), gives=other) == [
        "input.0", "output.0",
    ]  # fmt: skip
    assert unset(finder, "Tensor.t.0.forward", other, gives=FRESH) == ["input.0", "output.0"], "and on"


def test_what_has_something_else_to_work_on_is_judged(finder: UninitializedJudge) -> None:
    unset(finder, "Torch.empty.0.forward", gives=FRESH)
    assert unset(finder, "Torch.add.0.forward", FRESH, X, gives=FRESH) == ["input.0"]


def test_scalars_are_never_fresh_memory(finder: UninitializedJudge) -> None:
    unset(finder, "Torch.empty.0.forward", gives=[scalar_value(3), FRESH])
    assert unset(finder, "Torch.empty.1.forward", gives=[scalar_value(3)]) == []
    assert unset(finder, "Tensor.view.0.forward", scalar_value(3), FRESH, gives=X) == ["input.1", "output.0"]


def test_the_same_values_in_another_pairing_are_judged(finder: UninitializedJudge) -> None:
    unset(finder, "Torch.empty.0.forward", gives=FRESH)
    assert unset(finder, "Tensor.view.0.forward", FRESH[::-1], gives=X) == []
    assert unset(finder, "Tensor.view.1.forward", FRESH[0], gives=X) == []


def test_nan_in_fresh_memory_is_known_again(finder: UninitializedJudge) -> None:
    sides = (float("nan"), X)
    unset(finder, "Torch.empty.0.forward", gives=sides)
    assert unset(finder, "Tensor.view.0.forward", sides, gives=sides) == ["input.0", "output.0"]


def test_values_are_told_apart_by_dtype_shape_and_checksum(finder: UninitializedJudge) -> None:
    def of(**fields: Any) -> Value:
        return tensor_value(Statistics(), **fields)

    unset(finder, "Torch.empty.0.forward", gives=(of(checksum="a"), of(checksum="b")))
    for other in ({"checksum": "c"}, {"extent": "[3]"}, {"dtype": "torch.float16"}):
        sides = (of(**{"checksum": "a", **other}), of(checksum="b"))
        assert unset(finder, "Tensor.view.0.forward", sides, gives=X) == []
    assert unset(finder, "Tensor.view.1.forward", (of(checksum="a"), of(checksum="b")), gives=X) != []


def test_fresh_memory_of_one_run_alone(finder: UninitializedJudge) -> None:
    assert unset(finder, "Torch.empty.0.forward", gives=(X, None)) == ["output.0"]
    assert unset(finder, "Tensor.view.0.forward", (X, None), gives=(Y, None)) == ["input.0", "output.0"]


def test_zeros_that_happened_to_lie_in_fresh_memory_hide_nothing(finder: UninitializedJudge) -> None:
    """Fresh memory is often zero; then every tensor of zeros would count as fresh from there on."""
    unset(finder, "Torch.empty.0.forward", gives=0.0)
    assert unset(finder, "Torch.cos.0.forward", 0.0, gives=(2.0, 1.0)) == []


@pytest.mark.parametrize(
    "op", ["Torch.zeros_like", "Torch.ones_like", "Torch.full_like", "Tensor.new_zeros", "Tensor.new_ones"]
)
def test_what_takes_only_the_shape_of_fresh_memory_is_judged(finder: UninitializedJudge, op: str) -> None:
    unset(finder, "Torch.empty.0.forward", gives=FRESH)
    assert "output.0" not in unset(finder, f"{op}.0.forward", FRESH, gives=X)


def test_only_so_much_is_remembered(finder: UninitializedJudge) -> None:
    first, last = (1e9, 2e9), (float(MAX_REMEMBERED_PAIRS + 1), 0.0)
    unset(finder, "Torch.empty.0.forward", gives=first)
    for number in range(1, MAX_REMEMBERED_PAIRS + 2):
        unset(finder, f"Torch.empty.{number}.forward", gives=(float(number), 0.0))
    assert unset(finder, "Tensor.view.0.forward", last, gives=last) == ["input.0", "output.0"]
    assert unset(finder, "Tensor.view.1.forward", first, gives=first) == []


# -- memory is overwritten -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "set_"])
def test_what_is_overwritten_is_not_judged_and_the_result_is(finder: UninitializedJudge, name: str) -> None:
    assert unset(finder, f"Tensor.{name}.0.forward", FRESH, X, gives=X) == ["input.0"]
    assert unset(finder, f"Tensor.{name}.1.forward", FRESH, gives=X) == ["input.0"], "nothing else goes in"


@pytest.mark.parametrize("name", ["__setitem__", "index_put_", "index_copy_", "masked_scatter_"])
def test_what_is_overwritten_in_part_is_not_judged(finder: UninitializedJudge, name: str) -> None:
    assert unset(finder, f"Tensor.{name}.0.forward", FRESH, X, gives=FRESH) == ["input.0", "output.0"]
    assert unset(finder, "Tensor.view.0.forward", FRESH, gives=FRESH) == ["input.0", "output.0"]


def test_judge_skips_only_the_buffer_that_fsdp_fills_in_part(finder: UninitializedJudge) -> None:
    op = "Aten.fsdp.all_gather_copy_in.0.forward"
    keywords = {"0__0": X, "1": FRESH}
    assert unset(finder, op, **keywords, gives=[Y, FRESH]) == ["input.1", "output.1"]


def test_a_result_that_is_written_to_is_not_judged_before(finder: UninitializedJudge) -> None:
    assert unset(finder, "Torch.matmul.0.forward", X, Y, out=FRESH, gives=Z) == ["input.out"]
    assert unset(finder, "Torch.topk.0.forward", X, out__1=FRESH, gives=Z) == ["input.out.1"]


def test_an_overwritten_value_is_computed_from_there_on(finder: UninitializedJudge) -> None:
    unset(finder, "Torch.empty.0.forward", gives=FRESH)
    assert unset(finder, "Tensor.copy_.0.forward", FRESH, X, gives=X) == ["input.0"]
    assert unset(finder, "Torch.exp.0.forward", X, gives=Y) == []


def test_the_means_that_normal_draws_around_are_judged(finder: UninitializedJudge) -> None:
    assert unset(finder, "Torch.normal.0.forward", (1.0, 2.0), X, gives=Y) == []


# -- memory is received into -----------------------------------------------------------------------


def buffers() -> list[tuple[str, str]]:
    """Each communication API that overwrites one argument and sends another, or none, with the former."""
    return [(name, api.fills) for name, api in load_apis().items() if api.fills and api.fills != api.gives]


@pytest.mark.parametrize("scope", ["Distributed", "MintDistributed", "communication.comm_func"])
@pytest.mark.parametrize(("name", "argument"), buffers(), ids=lambda item: str(item))
def test_receive_buffers_are_not_judged(finder: UninitializedJudge, scope: str, name: str, argument: str) -> None:
    """By position, by keyword, and within a list; the values that arrived are."""
    op = f"{scope}.{name}.0.forward"
    place = load_apis()[name].arguments.index(argument)
    inputs: list[Sides] = [X] * place + [FRESH]
    assert unset(finder, op, *inputs, gives=Y) == [f"input.{place}"]
    assert unset(finder, op, **{argument: FRESH, "other": X}, gives=Y) == [f"input.{argument}"]
    assert unset(finder, op, **{f"{place}__1": FRESH}, gives=Y) == [f"input.{place}.1"]


def test_a_list_of_receive_buffers(finder: UninitializedJudge) -> None:
    keywords = {"0__0": FRESH, "0__1": FRESH, "1": X}
    assert unset(finder, "Distributed.all_gather.0.forward", **keywords, gives=[X, Y]) == [
        "input.0.0", "input.0.1",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["all_reduce", "reduce", "broadcast", "send", "isend"])
def test_what_is_sent_is_judged(finder: UninitializedJudge, name: str) -> None:
    assert unset(finder, f"Distributed.{name}.0.forward", X, gives=Y) == []


def test_fresh_memory_that_a_broadcast_overwrites(finder: UninitializedJudge) -> None:
    unset(finder, "Torch.empty.0.forward", gives=FRESH)
    assert unset(finder, "Distributed.broadcast.0.forward", FRESH, scalar_value(0), gives=X) == ["input.0"]
    assert unset(finder, "Torch.exp.0.forward", X, gives=Y) == []


def test_what_a_broadcast_overwrites_depends_on_the_rank() -> None:
    """The root's value is sent; what the others hold before is overwritten."""
    for source in ({"src": scalar_value(1)}, {"1": scalar_value(1)}, {"group_src": scalar_value(1)}):
        for name, found in (("broadcast", ["input.0"]), ("all_reduce", [])):
            op = f"Distributed.{name}.0.forward"
            assert unset(UninitializedJudge(), op, X, **source, gives=Y) == found
            assert unset(UninitializedJudge(), op, X, **source, gives=Y, rank=1) == []


def test_values_not_computed_yet_get_verdicts_that_say_nothing() -> None:
    """The label of the table stays; what -da says of them is that they were not computed yet."""
    wrong = Verdict(Level.ERROR, "No", failed=True)
    op = "Tensor.copy_.0.forward"
    rows = [row(Side.INPUT, path, FRESH)._replace(verdict=wrong) for path in ("0", "1", "0.1")]
    rulings = UninitializedJudge().judge(Op(op), rows)
    assert sorted(rulings) == [0, 2]
    for ruling in rulings.values():
        verdict, further = ruling.verdict, ruling.further
        assert (verdict.level, verdict.label, verdict.failed) == (Level.SKIP, "No", False)
        assert further is not None and further.level is Level.SKIP
        assert [reason.detail for reason in further.reasons] == [
            "uninitialized memory, or overwritten before it is read"
        ]


def test_a_null_in_place_of_a_buffer(finder: UninitializedJudge) -> None:
    assert unset(finder, "Distributed.all_gather.0.forward", NULL, X, gives=Y) == []


def test_a_null_in_place_of_a_buffer_on_one_side(finder: UninitializedJudge) -> None:
    """An older recorder notes the buffer, a newer one null; either may be the target."""
    op = "Distributed.all_gather_into_tensor.0.forward"
    assert unset(finder, op, (value(X), NULL), X, gives=Y) == ["input.0"]
    assert unset(finder, op, (NULL, value(X)), X, gives=Y) == ["input.0"]


def transfer(op: str, peer: int, number: float) -> Value:
    return value(number)._replace(p2p=Transfer(op, peer))


def test_the_receive_buffers_among_sends_and_receives(finder: UninitializedJudge) -> None:
    keywords = {
        "0__0": (transfer("isend", 1, X), transfer("isend", 1, X)),
        "0__1": (transfer("irecv", 1, FRESH[0]), transfer("irecv", 1, FRESH[1])),
    }
    assert unset(finder, "Distributed.batch_isend_irecv.0.forward", **keywords) == ["input.0.1"]


def test_what_a_list_of_sends_gives_is_judged(finder: UninitializedJudge) -> None:
    keywords = {"0__0": (transfer("isend", 1, X), transfer("isend", 1, Y))}
    assert unset(finder, "Distributed.batch_isend_irecv.0.forward", **keywords) == []
