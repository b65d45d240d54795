"""Laws of collectives on recorded calls of several ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from support.cases import every
from support.runs.collectives import (
    FLOATS,
    INTS,
    Array,
    Group,
    Op,
    World,
    checked,
    deliver_all_reduce,
    named,
    values,
    world,
)

from probe_core.model import Record

# -- calls of several ranks ----------------------------------------------------------------------------------


Given = dict[int, Array]
Deliver = Callable[[World, "tuple[int, ...]", Any, "dict[str, Any]"], "list[int]"]
"""Makes a call of each rank of a group, with a value for buffers and keywords; the ranks that receive."""


def deliver_reduce(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    due = np.max([values(rank) for rank in group], axis=0)
    for rank in group:
        out = due if rank == group[-1] else values(99)
        ranks[rank].call("reduce", [values(rank), group[-1], Op("MAX")], [out, group[-1], None], **named)
    return [group[-1]]


def deliver_all_gather(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    for rank in group:
        due = [values(other) for other in group]
        before = None if buffer is None else [buffer(6) for _ in group]
        ranks[rank].call("all_gather", [before, values(rank)], [due, values(rank)], **named)
    return list(group)


def gather_into(api: str) -> Deliver:
    def deliver(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
        due = np.concatenate([values(rank) for rank in group])
        for rank in group:
            before = None if buffer is None else buffer(due.size)
            ranks[rank].call(api, [before, values(rank)], [due.copy(), values(rank)], **named)
        return list(group)

    return deliver


def deliver_gather(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    root = group[-1]
    for rank in group:
        before = [buffer(6) if buffer else values(77) for _ in group] if rank == root else None
        after = [values(other) for other in group] if rank == root else None
        ranks[rank].call("gather", [values(rank), before, root], [values(rank), after, root], **named)
    return [root]


def deliver_broadcast(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    root = group[-1]
    for rank in group:
        before = values(rank) if rank == root else buffer(6) if buffer else None
        ranks[rank].call("broadcast", [before, root], [values(root), root], **named)
    return list(group)


def deliver_scatter(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    root = group[-1]
    for number, rank in enumerate(group):
        pieces = [values(50 + other) for other in range(len(group))] if rank == root else None
        before = buffer(6) if buffer else None
        ranks[rank].call("scatter", [before, pieces, root], [values(50 + number), pieces, root], **named)
    return list(group)


def deliver_reduce_scatter(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    """Pieces of unequal sizes."""
    given = {rank: [values(rank + number, number + 1) for number in range(len(group))] for rank in group}
    for number, rank in enumerate(group):
        due = np.prod([given[other][number].astype(np.float64) for other in group], axis=0).astype(np.float32)
        before = buffer(number + 1) if buffer else None
        arguments = [given[rank], Op("PRODUCT")]
        ranks[rank].call("reduce_scatter", [before, *arguments], [due, *arguments], **named)
    return list(group)


def scatter_tensor(api: str) -> Deliver:
    def deliver(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
        given = {rank: values(rank, 2 * len(group)).reshape(-1, 2) for rank in group}
        mean = np.mean([given[rank].astype(np.float64) for rank in group], axis=0).astype(np.float32)
        for number, rank in enumerate(group):
            before = None if buffer is None else buffer(2)
            due = mean[number : number + 1].copy()
            ranks[rank].call(api, [before, given[rank], Op("AVG")], [due, given[rank], None], **named)
        return list(group)

    return deliver


def deliver_all_to_all(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    given = {rank: [values(10 * rank + to, to + 1) for to in range(len(group))] for rank in group}
    for number, rank in enumerate(group):
        due = [given[other][number] for other in group]
        before = None if buffer is None else [buffer(number + 1) for _ in group]
        ranks[rank].call("all_to_all", [before, given[rank]], [due, given[rank]], **named)
    return list(group)


def deliver_all_to_all_single(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    count = len(group)
    given = {rank: values(rank, 4 * count).reshape(2 * count, 2) for rank in group}
    for number, rank in enumerate(group):
        due = np.concatenate([given[other][2 * number : 2 * number + 2] for other in group])
        before = None if buffer is None else buffer(due.size)
        ranks[rank].call("all_to_all_single", [before, given[rank]], [due, given[rank]], **named)
    return list(group)


def deliver_all_to_all_split(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    """Rank number i gives i + j rows to rank number j; nothing to itself where i is 0."""
    count = len(group)
    sizes = {rank: [number + to for to in range(count)] for number, rank in enumerate(group)}
    given = {rank: values(rank, 2 * sum(sizes[rank])).reshape(-1, 2) for rank in group}
    for number, rank in enumerate(group):
        pieces = []
        for other in group:
            start = sum(sizes[other][:number])
            pieces.append(given[other][start : start + sizes[other][number]])
        out = [sizes[other][number] for other in group]
        before = None if buffer is None else buffer(2 * sum(out))
        ranks[rank].call(
            "all_to_all_single",
            [before, given[rank], out, sizes[rank]],
            [np.concatenate(pieces), given[rank], out, sizes[rank]],
            **named,
        )
    return list(group)


DELIVER: dict[str, Deliver] = {
    "all_reduce": deliver_all_reduce,
    "reduce": deliver_reduce,
    "all_gather": deliver_all_gather,
    "all_gather_into_tensor": gather_into("all_gather_into_tensor"),
    "_all_gather_base": gather_into("_all_gather_base"),
    "gather": deliver_gather,
    "broadcast": deliver_broadcast,
    "scatter": deliver_scatter,
    "reduce_scatter": deliver_reduce_scatter,
    "reduce_scatter_tensor": scatter_tensor("reduce_scatter_tensor"),
    "_reduce_scatter_base": scatter_tensor("_reduce_scatter_base"),
    "all_to_all": deliver_all_to_all,
    "all_to_all_single": deliver_all_to_all_single,
    "split sizes": deliver_all_to_all_split,
}
by_api = every("api", DELIVER)


def rubbish(size: int) -> Array:
    return np.full(size, np.nan, np.float32)


GROUPS = [((0, 1), ()), ((0, 1, 2, 3), ()), ((0, 2), (1, 3)), ((3, 1, 2), (0,))]
BUFFERS = every("buffer", [None, rubbish], ids=["null", "rubbish"])


@by_api
@BUFFERS
@every("groups", GROUPS, ids=str)
def test_calls_that_keep_their_law(api: str, buffer: Any, groups: Any) -> None:
    """Twice in each group, the groups one behind the other; in the order of the group, whatever that is."""
    ranks = world(*sorted(itertools.chain(*groups)))
    count = 0
    for _ in range(2):
        for group in filter(None, groups):
            count += len(DELIVER[api](ranks, group, buffer, {"group": Group(group)}))
    found = checked(ranks)
    assert (found.kept, found.breaches, found.unchecked) == (count, [], {})


@by_api
@BUFFERS
def test_calls_of_the_default_group(api: str, buffer: Any) -> None:
    ranks = world(0, 1, 2)
    count = len(DELIVER[api](ranks, (0, 1, 2), buffer, {}))
    found = checked(ranks)
    assert (found.kept, found.breaches, found.unchecked) == (count, [], {})


@by_api
def test_who_received_something_else_is_named_with_its_call(api: str) -> None:
    """The second of two calls in the second of two groups, on each rank in turn."""
    groups = (0, 2), (1, 3)
    for victim in (1, 3):
        ranks = world(0, 1, 2, 3)
        for _ in range(2):
            for group in groups:
                receive = DELIVER[api](ranks, group, rubbish, {"group": Group(group)})
        if victim not in receive:
            continue
        record = ranks[victim].found[-1]
        names = [name for name in ranks[victim].arrays if name.startswith(f"{record.key}.output")]
        place = "1." if api == "gather" else "0"
        name = next(one for one in names if one.startswith(f"{record.key}.output.{place}"))
        spoilt = ranks[victim].arrays[name].copy()
        spoilt.reshape(-1)[0] *= np.float32(1.01)
        ranks[victim].arrays[name] = spoilt
        found = checked(ranks)
        assert named(found) == [(victim, record.key)]
        assert " wrong; the worst, at flat index 0, is " in found.breaches[0].evidence
        assert not found.unchecked and found.kept == 4 * len(receive) - 1


@by_api
def test_values_of_another_rank_in_the_wrong_place_are_named(api: str) -> None:
    """All that a rank received comes in the opposite order."""
    ranks = world(0, 1)
    victim = DELIVER[api](ranks, (0, 1), rubbish, {})[-1]
    key = ranks[victim].found[-1].key
    place = "1." if api == "gather" else "0"
    for name, array in ranks[victim].arrays.items():
        if name.startswith(f"{key}.output.{place}"):
            ranks[victim].arrays[name] = array.reshape(-1)[::-1].reshape(array.shape).copy()
    assert named(checked(ranks)) == [(victim, key)]


@by_api
@every("is_recorded", [True, False], ids=["unreadable", "not recorded"])
def test_tensors_that_are_missing_are_counted(api: str, is_recorded: bool) -> None:
    ranks = world(0, 1)
    DELIVER[api](ranks, (0, 1), None, {"group": Group((0, 1))})
    for rank in ranks.values():
        for number, record in enumerate(rank.found):
            slots = [
                slot._replace(value=slot.value._replace(data_name="x.pt" if is_recorded else None))
                if slot.value.data_name
                else slot
                for slot in record.slots
            ]
            rank.found[number] = Record(record.index, record.key, tuple(slots))
    found = checked(ranks)
    why = "a tensor cannot be read" if is_recorded else "the data of tensors were not recorded"
    assert (found.kept, found.breaches, found.unchecked) == (0, [], {why: 2})


@by_api
def test_a_rank_of_the_group_that_is_missing_is_counted(api: str) -> None:
    ranks = world(0, 1, 2)
    DELIVER[api](ranks, (0, 1, 2), None, {"group": Group((0, 1, 2))})
    del ranks[1]
    found = checked(ranks)
    assert (found.kept, found.breaches) == (0, [])
    assert found.unchecked == {"a rank of the group has no record of the call": 2}


@every("lost", [0, 1, 2])
@every("api", ["all_reduce", "all_gather", "reduce_scatter_tensor", "all_to_all_single"])
def test_a_rank_of_the_default_group_that_is_missing_is_counted(api: str, lost: int) -> None:
    """Somewhere the run says how many ranks there are; else nobody can know what is missing."""
    ranks = world(0, 1, 2)
    DELIVER[api](ranks, (0, 1, 2), None, {})
    deliver_all_to_all(ranks, (0, 1, 2), None, {"group": Group((0, 1, 2))})
    del ranks[lost]
    found = checked(ranks)
    assert (found.kept, found.breaches) == (0, []) and sum(found.unchecked.values()) == 4


def test_one_rank_lacks_a_call() -> None:
    ranks = world(0, 1)
    deliver_all_reduce(ranks, (0, 1), None, {"group": Group((0, 1))})
    ranks[0].call("all_reduce", [values(0)], [values(0)], group=Group((0, 1)))
    found = checked(ranks)
    assert found.kept == 2 and not found.breaches
    assert found.unchecked == {"a rank of the group has no record of the call": 1}


@every("operation", ["PREMUL_SUM", "UNUSED", "x" * 500])
def test_an_operation_that_is_not_known_is_counted(operation: str) -> None:
    ranks = world(0, 1)
    for rank in ranks:
        ranks[rank].call("all_reduce", [values(rank), Op(operation)], [values(rank), None])
    found = checked(ranks)
    (why,) = found.unchecked
    assert why.startswith("the operation") and len(why) < 80 and found.unchecked[why] == 2


@every("text", ["sum", "ReduceOp.SUM", "RedOpType.SUM", None])
def test_the_operation_in_other_words(text: Any) -> None:
    ranks = world(0, 1)
    for rank in ranks:
        out = values(0) + values(1)
        ranks[rank].call("all_reduce", [values(rank), text], [out, text])
    assert checked(ranks).kept == 2


def test_arguments_by_keyword_in_any_order() -> None:
    due = np.maximum(values(0), values(1))
    ranks = world(0, 1)
    for rank in ranks.values():
        rank.counts["all_reduce"] = 0
    for number, rank in ranks.items():
        for out, good in ((due, True), (values(0), False)):
            fields: dict[str, Any] = {"op": Op("MAX"), "group": Group((0, 1)), "tensor": values(number)}
            key = rank.call("all_reduce", [], [], **fields)
            rank.arrays[f"{key}.output.2.pt"] = out
            assert good or key
    assert named(checked(ranks)) == [(rank, "Distributed.all_reduce.1.forward") for rank in (0, 1)]


@every("words", [{"src": 3}, {"group_src": 1}, {"src": None, "group_src": 1}])
def test_the_rank_that_gives_by_its_number_in_the_world_or_in_the_group(words: dict[str, Any]) -> None:
    ranks = world(1, 3)
    for rank in ranks:
        ranks[rank].call("broadcast", [values(rank)], [values(3)], group=Group((1, 3)), **words)
    assert checked(ranks).kept == 2


def test_without_a_root_the_first_of_the_group_takes_it() -> None:
    ranks = world(1, 3)
    for rank in ranks:
        ranks[rank].call("reduce", [values(rank)], [values(1) + values(3) if rank == 1 else None], group=Group((1, 3)))
    found = checked(ranks)
    assert (found.kept, found.breaches, found.unchecked) == (1, [], {})


def test_other_calls_and_other_phases_are_none_of_its_business() -> None:
    ranks = world(0, 1)
    for rank in ranks.values():
        for key in (
            "Distributed.all_reduce.0.backward",
            "Functional.all_reduce.0.forward",
            "Distributed.new.0.forward",
        ):
            rank.call(key, [values(0)], [values(5)])
        rank.call("barrier", [], [])
        rank.call("all_gather_object", [None], [None])
    found = checked(ranks)
    assert (found.kept, found.breaches, found.unchecked) == (0, [], {})


@every("dtype", [*FLOATS, *INTS, np.dtype(bool)], ids=str)
def test_values_of_every_dtype_are_moved(dtype: np.dtype[Any]) -> None:
    given = {rank: np.array([[rank, 1], [2, 3]]).astype(dtype) for rank in (0, 1)}
    for wrong in (False, True):
        ranks = world(0, 1)
        for rank in ranks:
            due = np.concatenate([given[0], given[1]])
            if wrong and rank == 1:
                due[2, 0] = 0
            ranks[rank].call("all_gather_into_tensor", [None, given[rank]], [due, given[rank]])
        assert named(checked(ranks)) == ([(1, "Distributed.all_gather_into_tensor.0.forward")] if wrong else [])


def test_empty_pieces_and_numbers_without_dimensions() -> None:
    ranks = world(0, 1)
    empty, number = np.empty((0, 4), np.int64), np.array(3, np.int64)
    for rank in ranks:
        ranks[rank].call("all_gather", [None, empty], [[empty, empty], empty])
        ranks[rank].call("all_reduce", [number], [np.array(6, np.int64)])
        ranks[rank].call("all_gather", [None, number], [[number, number], number])
        pieces = [empty, empty] if rank == 0 else [np.arange(4), empty]
        ranks[rank].call("all_to_all", [None, pieces], [[empty, np.arange(4) if rank == 0 else empty], pieces])
    found = checked(ranks)
    assert (found.kept, found.breaches, found.unchecked) == (8, [], {})
