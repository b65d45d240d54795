"""The search of the first difference on random programs, held against their causes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from probe_diagnosis.collectives.calls import CommunicationCall, Flow, Peer, load_apis
from probe_diagnosis.difference.search import search
from probe_diagnosis.first_difference.rank_file import read_items, read_rank_file
from probe_diagnosis.timeline.compared_calls import ComparedCall
from support.measuring import PROPERTY
from support.runs.ops import FAULT, UNSET, op, within

# -- random programs -------------------------------------------------------------------------------


@dataclass
class Event:
    """An event of a program: an op of one rank, or a call that several make together."""

    api: str
    ranks: tuple[int, ...]
    root: int = 0
    group: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    writes: int = 0


VARIABLES = 3
COLLECTIVES = ["all_reduce", "all_gather", "broadcast", "scatter", "reduce", "gather", "barrier"]


def program(rng: random.Random, world: int, length: int) -> list[Event]:
    """Draw the events of a program, in an order in which they could happen."""
    events = []
    for _ in range(length):
        kind = rng.choice(["compute"] * 4 + ["collective", "transfer", "ring"])
        chosen = {
            "reads": tuple(rng.randrange(VARIABLES) for _ in range(rng.randint(1, 2))),
            "writes": rng.randrange(VARIABLES),
        }
        if kind == "compute" or world == 1:
            events.append(Event("compute", (rng.randrange(world),), **chosen))
            continue
        ranks = tuple(sorted(rng.sample(range(world), rng.randint(2, world))))
        if kind == "collective":
            group = () if len(ranks) == world and rng.random() < 0.5 else ranks
            root = rng.choice(ranks)
            events.append(Event(rng.choice(COLLECTIVES), ranks, root, group, **chosen))
        elif kind == "transfer":
            events.append(Event("send", tuple(rng.sample(ranks, 2)), **chosen))
        else:
            events.append(Event("batch_isend_irecv", ranks, **chosen))
    return events


@dataclass
class Machine:
    """Runs a program twice in one go, with faults and without, and records how far values are apart.

    Cause and effect are followed by the values themselves and by what each rank has heard of; neither
    looks at how the search goes about it.
    """

    world: int
    faults: dict[int, int]
    growth: float = 1.0
    ops: dict[int, list[ComparedCall]] = field(default_factory=dict)
    memory: dict[int, list[float]] = field(default_factory=dict)
    heard: dict[int, set[int]] = field(default_factory=dict)
    culprits: list[tuple[int, str]] = field(default_factory=list)

    def run(self, events: Sequence[Event]) -> None:
        for rank in range(self.world):
            self.ops[rank] = []
            self.memory[rank] = [0.1] * VARIABLES
            self.heard[rank] = set()
        for moment, event in enumerate(events):
            {"compute": self.compute, "send": self.send, "batch_isend_irecv": self.ring}.get(
                event.api, self.collective
            )(moment, event, self.faults.get(moment))

    def read(self, rank: int, event: Event) -> list[float]:
        return [self.memory[rank][place] for place in event.reads]

    def record(self, rank: int, facts: ComparedCall) -> None:
        self.ops[rank].append(facts)

    def blame(self, rank: int, moment: int, name: str) -> None:
        """A fault happens on a rank: it is to be named unless the rank has heard of another."""
        if not self.heard[rank]:
            self.culprits.append((rank, name))
        self.heard[rank] = self.heard[rank] | {moment}

    def compute(self, moment: int, event: Event, fault: int | None) -> None:
        (rank,) = event.ranks
        name = f"Torch.op.{moment}.forward"
        taken = self.read(rank, event)
        given = min(max(taken) * self.growth, FAULT)
        if fault is not None:
            given = max(given, FAULT)
            self.blame(rank, moment, name)
        self.memory[rank][event.writes] = given
        self.record(rank, op(name, taken, [given]))

    def collective(self, moment: int, event: Event, fault: int | None) -> None:
        flow = load_apis()[event.api].flow
        sent = {rank: self.read(rank, event)[0] for rank in event.ranks}
        heard = {rank: set(self.heard[rank]) for rank in event.ranks}
        for rank in event.ranks:
            sources = {Flow.ALL: event.ranks, Flow.FROM_ROOT: (event.root,), Flow.NONE: ()}.get(
                flow, event.ranks if rank == event.root else ()
            )
            name = f"Distributed.{event.api}.{moment}.forward"
            got = max((sent[source] for source in sources), default=None)
            for source in sources:
                self.heard[rank] = self.heard[rank] | heard[source]
            if got is not None:
                if fault == rank:
                    got = max(got, FAULT)
                    self.blame(rank, moment, name)
                self.memory[rank][event.writes] = got
            call_ = CommunicationCall(load_apis()[event.api], event.group, event.root)
            outputs = [got] if got is not None else []
            self.record(rank, op(name, [sent[rank]] if flow is not Flow.NONE else [], outputs, communication=call_))

    def send(self, moment: int, event: Event, fault: int | None) -> None:
        source, drain = event.ranks
        sent = self.read(source, event)[0]
        got = sent
        self.heard[drain] = self.heard[drain] | self.heard[source]
        name = f"Distributed.recv.{moment}.forward"
        if fault == drain:
            got = FAULT
            self.blame(drain, moment, name)
        self.memory[drain][event.writes] = got
        to, origin = CommunicationCall(load_apis()["send"], (), drain, (Peer(drain, True),)), Peer(source, False)
        self.record(source, op(f"Distributed.send.{moment}.forward", [sent], [], communication=to))
        self.record(
            drain, op(name, [UNSET], [got], communication=CommunicationCall(load_apis()["recv"], (), source, (origin,)))
        )

    def ring(self, moment: int, event: Event, fault: int | None) -> None:
        heard = {rank: set(self.heard[rank]) for rank in event.ranks}
        sent = {rank: self.read(rank, event)[0] for rank in event.ranks}
        for place, rank in enumerate(event.ranks):
            after, before = event.ranks[(place + 1) % len(event.ranks)], event.ranks[place - 1]
            self.heard[rank] = self.heard[rank] | heard[before]
            self.memory[rank][event.writes] = sent[before]
            peers = (Peer(after, True), Peer(before, False))
            found = CommunicationCall(load_apis()["batch_isend_irecv"], (), None, peers)
            name = f"Distributed.batch_isend_irecv.{moment}.forward"
            self.record(rank, op(name, [sent[rank], UNSET], [], communication=found))


def can_fail(event: Event) -> list[int]:
    """The ranks on which a fault of an event would show in what it gives out."""
    flow = Flow.NONE if event.api == "compute" else load_apis()[event.api].flow
    if event.api == "compute" or flow is Flow.ALL or flow is Flow.FROM_ROOT:
        return list(event.ranks)
    if event.api == "send":
        return [event.ranks[1]]
    return [event.root] if flow is Flow.TO_ROOT else []


def machine(seed: int, world: int, length: int, count: int, growth: float = 1.0) -> Machine:
    """A random program that ran with ``count`` faults."""
    rng = random.Random(seed)
    events = program(rng, world, length)
    places = [(moment, rank) for moment, event in enumerate(events) for rank in can_fail(event)]
    faults = dict(rng.sample(places, min(count, len(places))))
    made = Machine(world, faults, growth)
    made.run(events)
    return made


def full(ranks: dict[int, Sequence[ComparedCall]]) -> list[tuple[int, str]]:
    with within(60):
        return [(node.rank, node.call.op) for node in search(ranks).first]


SEEDS = st.integers(0, 2**32)
WORLDS = st.integers(1, 8)


@PROPERTY
@given(SEEDS, WORLDS, st.integers(0, 60))
def test_a_program_without_fault_names_nothing(seed: int, world: int, length: int) -> None:
    assert full(machine(seed, world, length, 0).ops) == []


@PROPERTY
@given(SEEDS, WORLDS, st.integers(1, 60), st.floats(1, 9.9))
def test_a_program_that_rounds_names_nothing(seed: int, world: int, length: int, growth: float) -> None:
    """Each op makes of rounding a few times as much."""
    assert full(machine(seed, world, length, 0, growth).ops) == []


@PROPERTY
@given(SEEDS, WORLDS, st.integers(1, 60))
def test_the_one_fault_of_a_program_is_named_and_nothing_else(seed: int, world: int, length: int) -> None:
    made = machine(seed, world, length, 1)
    assert full(made.ops) == made.culprits
    assert len(made.culprits) == len(made.faults)


@PROPERTY
@given(SEEDS, WORLDS, st.integers(1, 60), st.integers(2, 6))
def test_faults_that_have_not_heard_of_each_other_are_all_named(seed: int, world: int, length: int, count: int) -> None:
    made = machine(seed, world, length, count)
    assert sorted(full(made.ops)) == sorted(made.culprits)


@PROPERTY
@given(SEEDS, WORLDS, st.integers(1, 60), st.integers(0, 3))
def test_the_search_ends_on_records_that_end_too_early(seed: int, world: int, length: int, count: int) -> None:
    """A rank names one op at most, and one of those on its record."""
    made = machine(seed, world, length, count)
    rng = random.Random(seed)
    cut = {rank: ops[: rng.randint(0, len(ops))] for rank, ops in made.ops.items()}
    found = full(cut)
    assert len({rank for rank, _ in found}) == len(found)
    assert all(name in [facts.op for facts in cut[rank]] for rank, name in found)


@PROPERTY
@given(SEEDS, WORLDS, st.integers(1, 60), st.integers(0, 3))
def test_the_search_ends_on_records_with_holes(seed: int, world: int, length: int, count: int) -> None:
    made = machine(seed, world, length, count)
    rng = random.Random(seed)
    holed = {rank: [facts for facts in ops if rng.random() < 0.8] for rank, ops in made.ops.items()}
    found = full(holed)
    assert len({rank for rank, _ in found}) == len(found)
    if not count:
        assert found == []


@PROPERTY
@given(SEEDS, st.integers(2, 8), st.integers(1, 60))
def test_ranks_that_were_not_compared_make_no_other_guilty(seed: int, world: int, length: int) -> None:
    """Without fault nothing is named, whoever is missing; with one, it is named if its rank is there."""
    rng = random.Random(seed)
    there = rng.sample(range(world), rng.randint(1, world))
    clean = machine(seed, world, length, 0)
    assert full({rank: clean.ops[rank] for rank in there}) == []
    made = machine(seed, world, length, 1)
    found = full({rank: made.ops[rank] for rank in there})
    ours = [culprit for culprit in made.culprits if culprit[0] in there]
    assert [one for one in found if one in ours] == ours


def test_many_ranks_and_calls_take_little_time() -> None:
    made = machine(7, 64, 4_000, 1)
    with within(60):
        assert full(made.ops) == made.culprits


def test_what_stands_for_no_stack_is_none(tmp_path: Path) -> None:
    """The table's column says N/A, in this row and that; a row with frames gives them."""
    values = {"state": "differs", "distance": 1.0, "scale": 1.0, "noise": 0.0, "jump": 10.0, "scalar": False,
              "why": ""}  # fmt: skip
    rows = [
        {"NPU Name": f"op.output.{n}", "Bench Name": "N/A", "state": "output", "difference": values} | stack
        for n, stack in enumerate(({"NPU_Stack_Info": "N/A"}, {}, {"NPU_Stack_Info": ["line 1", "line 2"]}))
    ]
    path = tmp_path / "compare_result_rank0_1.json"
    path.write_text(json.dumps({"op": {"is_same": False, "op_items": rows}}, indent=4))
    (facts,) = read_rank_file(path)
    items = read_items(path, facts.file_range)
    assert [item.stack for item in items] == [(), (), ("line 1", "line 2")]
    assert [item.comparison for item in items] == list(facts.values)
