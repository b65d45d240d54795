"""Pairs of record files: ranks and steps go by their numbers, and leftovers are said."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.measuring import PROPERTY
from support.sampling import examples

from probe_core.errors import UserError
from probe_core.store.files import DEFAULT_RECORD_FILES
from probe_core.store.layout import Pairing, pair_runs

DUMP, DEBUG = DEFAULT_RECORD_FILES
ONE = (DUMP,)
ON_DISK = settings(PROPERTY, max_examples=examples(60))
Tree = Callable[[str, Mapping[str, Iterable[str]]], Path]


def plant(root: Path, ranks: Mapping[str, Iterable[str]]) -> Path:
    """Directories below ``root``, each with these record files, which hold nothing."""
    root.mkdir(parents=True, exist_ok=True)
    for name, files in ranks.items():
        (root / name).mkdir(parents=True)
        for file in files:
            (root / name / file).write_text("{}")
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """``tree("target", {"rank0": ["dump.json"]})``: that directory."""
    return lambda name, ranks: plant(tmp_path / name, ranks)


def shown(pairing: Pairing) -> list[tuple[str, str, str, int]]:
    """Of each pair the directories of both files, its name and its rank."""
    return [(pair.target.parent.name, pair.golden.parent.name, pair.name, pair.rank) for pair in pairing.pairs]


def refusal(*arguments: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        pair_runs(*arguments)
    assert caught.value.what.count(". ") == 0 and caught.value.fix
    return caught.value


# -- ranks -----------------------------------------------------------------------------------------


def test_ranks_pair_by_number_whatever_their_order(tree: Tree) -> None:
    target = tree("t", {f"rank{n}": ONE for n in (10, 2, 0)})
    golden = tree("g", {f"rank{n}": ONE for n in (0, 2, 10)})
    assert shown(pair_runs(target, golden)) == [(f"rank{n}", f"rank{n}", f"rank{n}", n) for n in (0, 2, 10)]


def test_zeros_in_front_do_not_make_another_number(tree: Tree) -> None:
    target, golden = tree("t", {"rank07": ONE, "rank1": ONE}), tree("g", {"rank7": ONE, "rank01": ONE})
    assert shown(pair_runs(target, golden)) == [
        ("rank1", "rank01", "rank1", 1),
        ("rank07", "rank7", "rank7", 7),
    ]


@pytest.mark.parametrize("names", [*product(("rank", "rank0", "rank5", "proc123", "proc7"), repeat=2)])
def test_one_rank_each_pairs_where_a_number_is_lacking(names: tuple[str, str], tree: Tree) -> None:
    target, golden = tree("t", {names[0]: ONE}), tree("g", {names[1]: ONE})
    pairing = pair_runs(target, golden)
    (pair,) = pairing.pairs
    numbers = [int(name[4:]) for name in names if name in ("rank0", "rank5")]
    assert (pair.name, pair.rank) == ("", next(iter(numbers), 0))
    assert len(pairing.notes) == ({"rank0", "rank5"} == set(names))


@pytest.mark.parametrize("single", ["rank", "proc123"])
def test_a_single_one_without_number_is_rank_0_of_several(single: str, tree: Tree) -> None:
    one, several = tree("one", {single: ONE}), tree("several", {"rank0": ONE, "rank1": ONE})
    assert shown(pair_runs(one, several)) == [(single, "rank0", "rank0", 0)]
    assert pair_runs(one, several).missing == ["Only the golden has rank 1."]
    assert pair_runs(several, one).missing == ["Only the target has rank 1."]


def test_pair_runs_without_a_common_number_pairs_ranks_in_order(tree: Tree) -> None:
    target = tree("t", {"rank19778": ONE, "rank980": ONE})
    golden = tree("g", {"rank0": ONE, "rank1": ONE})
    pairing = pair_runs(target, golden)
    assert shown(pairing) == [
        ("rank980", "rank0", "rank980-rank0", 980),
        ("rank19778", "rank1", "rank19778-rank1", 19778),
    ]
    assert pairing.notes == ["The ranks are paired in order: 980 with 0, 19778 with 1."]
    assert [pair.rank for pair in pair_runs(target, golden, ranks=(19778,)).pairs] == [19778]
    assert refusal(target, golden, (), (0,)).choices == ("980", "19778")
    assert "no rank in common" in refusal(target, golden, (), (), (DEFAULT_RECORD_FILES,), "number").what


def test_pair_runs_by_order_pairs_ranks_whose_numbers_overlap(tree: Tree) -> None:
    target = tree("t", {"rank0": ONE, "rank4": ONE})
    golden = tree("g", {"rank4": ONE, "rank5": ONE})
    assert shown(pair_runs(target, golden)) == [("rank4", "rank4", "rank4", 4)]
    ordered = pair_runs(target, golden, pair_ranks="order")
    assert [(pair.rank, pair.golden_rank) for pair in ordered.pairs] == [(0, 4), (4, 5)]
    same = pair_runs(target, target, pair_ranks="order")
    assert [pair.label for pair in same.pairs] == ["rank0", "rank4"] and not same.notes
    several = tree("s", {"rank0": ONE, "rank1": ONE, "rank2": ONE})
    assert "2 ranks and the golden 3" in refusal(target, several, (), (), (DEFAULT_RECORD_FILES,), "order").what
    assert "got 'sorted'" in refusal(target, golden, (), (), (DEFAULT_RECORD_FILES,), "sorted").what


def test_a_damaged_rank_does_not_shift_ranks_that_pair_in_order(tree: Tree) -> None:
    target = tree("t", {"rank0": ONE, "rank1": (), "rank2": ONE})
    golden = tree("g", {f"rank{n}": ONE for n in (5, 6, 7)})
    pairing = pair_runs(target, golden)
    assert [(pair.rank, pair.golden_rank) for pair in pairing.pairs] == [(0, 5), (2, 7)]
    assert len(pairing.damaged) == 1


def test_what_one_side_lacks_is_said_of_either(tree: Tree) -> None:
    target, golden = (
        tree("t", {f"rank{n}": ONE for n in (0, 1, 3)}),
        tree("g", {f"rank{n}": ONE for n in (1, 2, 3, 9)}),
    )
    pairing = pair_runs(target, golden)
    assert [pair.rank for pair in pairing.pairs] == [1, 3]
    assert pairing.missing == ["Only the target has rank 0.", "Only the golden has rank 2, 9."]
    assert pairing.damaged == []


def test_many_missing_ranks_do_not_flood_the_screen(tree: Tree) -> None:
    target = tree("t", {f"rank{n}": ONE for n in range(300)})
    (line,) = pair_runs(target, tree("g", {"rank0": ONE, "rank1": ONE})).missing
    assert line.endswith("19, 20, 21 and 278 more.") and len(line) < 200


def test_two_that_are_given_pair_whatever_they_are(tree: Tree) -> None:
    target, golden = tree("t", {"rank3": ONE}), tree("g", {"rank8": ONE, "rank9": ONE})
    for ours, theirs in product(("rank3", f"rank3/{DUMP}"), ("rank9", f"rank9/{DUMP}")):
        pairing = pair_runs(target / ours, golden / theirs)
        assert shown(pairing) == [("rank3", "rank9", "", 3)] and not pairing.missing


def test_a_rank_that_is_given_finds_its_number_among_several(tree: Tree) -> None:
    target, golden = tree("t", {"rank1": ONE}), tree("g", {f"rank{n}": ONE for n in (0, 1, 2)})
    assert shown(pair_runs(target / "rank1", golden)) == [("rank1", "rank1", "rank1", 1)]
    bare = tree("bare", {"one": ONE}) / "one"
    said = refusal(bare, golden)
    assert "is one rank, and the other run has several" in said.what
    assert said.choices == tuple(str(golden / f"rank{n}" / DUMP) for n in (0, 1, 2))


def test_what_is_no_rank_is_left_alone(tree: Tree) -> None:
    ranks = {name: ONE for name in ("rank0", "ranks", "rank-1", "rank1.bak", "myrank2", "Rank3", "process4")}
    target = tree("t", ranks)
    (target / "rank5").write_text("a file")
    pairing = pair_runs(target, tree("g", {"rank0": ONE}))
    assert shown(pairing) == [("rank0", "rank0", "", 0)] and not pairing.missing and not pairing.damaged


def test_an_empty_rank_is_said_and_the_others_pair(tree: Tree) -> None:
    target = tree("t", {"rank0": ONE, "rank1": (), "rank2": ONE})
    pairing = pair_runs(target, tree("g", {f"rank{n}": ONE for n in range(3)}))
    assert [pair.rank for pair in pairing.pairs] == [0, 2]
    assert pairing.damaged == [f"There is no dump.json or debug.json in {target / 'rank1'}."]


@pytest.mark.parametrize("inside", [(), ("stack.json", "construct.json"), (".dump.json.0.part",)])
def test_a_step_that_was_killed_before_its_first_records_is_left_out(inside: tuple[str, ...], tmp_path: Path) -> None:
    for side in ("t", "g"):
        for step in (0, 1):
            rank = tmp_path / side / f"step{step}/rank"
            rank.mkdir(parents=True)
            if (side, step) == ("t", 1):
                for name in inside:
                    (rank / name).write_text("{")
            else:
                (rank / DUMP).write_text("{}")
    pairing = pair_runs(tmp_path / "t", tmp_path / "g")
    assert [(pair.part, pair.label) for pair in pairing.pairs] == [("step0", "")] and not pairing.damaged
    (said,) = pairing.missing
    assert "t/step1 or its ranks." in said and "left out" in said
    assert "There is no dump.json" in refusal(tmp_path / "t/step1", tmp_path / "g/step1").what


def test_a_step_that_lost_its_records_is_damaged(tmp_path: Path) -> None:
    for side in ("t", "g"):
        for step in (0, 1):
            rank = tmp_path / side / f"step{step}/rank"
            rank.mkdir(parents=True)
            (rank / (DUMP if (side, step) != ("t", 1) else "dump.json.bak")).write_text("{}")
    pairing = pair_runs(tmp_path / "t", tmp_path / "g")
    assert not pairing.missing and len(pairing.damaged) == 2


def test_ranks_that_are_all_empty(tree: Tree) -> None:
    target, golden = tree("t", {"rank0": (), "rank1": ()}), tree("g", {"rank0": ONE})
    assert f"in {target} or its ranks" in refusal(target, golden).what
    assert f"in {target} or its ranks" in refusal(golden, target).what


def test_a_rank_that_may_not_be_read(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for a directory without permission, which root would be free to read."""
    target, golden = (tree(side, {"rank0": ONE, "rank1": ONE}) for side in "tg")
    look = Path.iterdir

    def forbidden(path: Path) -> Any:
        if path == target / "rank1":
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(Path, "iterdir", forbidden)
    pairing = pair_runs(target, golden)
    assert [pair.rank for pair in pairing.pairs] == [0]
    assert pairing.damaged == [f"{target / 'rank1'} cannot be read: Permission denied."]


def test_the_only_rank_may_not_be_read(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for a directory without permission, which root would be free to read."""
    target, golden = (tree(side, {"rank": ONE}) for side in "tg")
    look = Path.iterdir

    def forbidden(path: Path) -> Any:
        if path == target / "rank":
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(Path, "iterdir", forbidden)
    for paths in ((target, golden), (golden, target)):
        assert refusal(*paths).what == f"{target / 'rank'} cannot be read: Permission denied."


@pytest.mark.parametrize("pair", [("rank1", "rank01"), ("rank", "rank0"), ("proc12", "proc34")])
def test_two_of_one_number_are_said_and_the_others_pair(pair: tuple[str, str], tree: Tree) -> None:
    target = tree("t", {**dict.fromkeys(pair, ONE), "rank2": ONE})
    pairing = pair_runs(target, tree("g", {f"rank{n}": ONE for n in range(3)}))
    assert shown(pairing) == [("rank2", "rank2", "rank2", 2)]
    assert all(name in pairing.damaged[0] for name in pair)


def test_two_of_one_number_are_named(tree: Tree) -> None:
    target, golden = tree("t", {"rank1": ONE, "rank01": ONE}), tree("g", {"rank0": ONE, "rank1": ONE})
    for sides in ((target, golden), (golden, target)):
        with pytest.raises(UserError, match=r"two ranks of number 1: rank0?1 and rank0?1"):
            pair_runs(*sides)


def test_chosen_ranks(tree: Tree) -> None:
    target, golden = (
        tree(side, {f"rank{n}": ONE for n in ranks}) for side, ranks in (("t", (0, 1, 3)), ("g", (0, 1, 2)))
    )
    assert [pair.rank for pair in pair_runs(target, golden, (), (1,)).pairs] == [1]
    pairing = pair_runs(target, golden, (), (1, 0))
    assert [pair.rank for pair in pairing.pairs] == [0, 1]
    assert pairing.missing == [], "nobody asked for the others"
    said = refusal(target, golden, (), (1, 2, 3, 7))
    assert "have rank 2, 3, 7" in said.what and said.choices == ("0", "1")


def test_a_rank_that_nobody_asked_for_is_no_error(tree: Tree) -> None:
    target = tree("t", {"rank0": ONE, "rank1": ()})
    golden = tree("g", {"rank0": ONE, "rank1": ONE})
    assert pair_runs(target, golden, (), (0,)).damaged == []


def test_nothing_in_common_says_what_there_is(tree: Tree) -> None:
    target, golden = tree("t", {"rank0": ONE, "rank1": ()}), tree("g", {"rank1": ONE, "rank2": ONE})
    said = refusal(target, golden)
    assert "have no rank in common" in said.what
    assert any("rank1" in line for line in said.choices)
    assert any("Only the golden has rank 1, 2" in line for line in said.choices)


# -- the two sorts of files ------------------------------------------------------------------------


def test_both_sorts_of_files_of_a_rank_pair(tree: Tree) -> None:
    target, golden = (tree(side, {"rank0": DEFAULT_RECORD_FILES, "rank1": DEFAULT_RECORD_FILES}) for side in "tg")
    names = [(pair.target.name, pair.golden.name, pair.name) for pair in pair_runs(target, golden).pairs]
    assert names == [
        (file, file, f"rank{rank}{'/debug.json' if file == DEBUG else ''}")
        for rank in (0, 1)
        for file in DEFAULT_RECORD_FILES
    ]


def test_files_of_two_sorts_are_said_and_the_others_pair(tree: Tree) -> None:
    target, golden = tree("t", {"rank0": ONE, "rank1": ONE}), tree("g", {"rank0": (DEBUG,), "rank1": ONE})
    pairing = pair_runs(target, golden)
    assert [pair.rank for pair in pairing.pairs] == [1]
    (line,) = pairing.damaged
    assert "The target holds dump.json of rank 0, and the golden debug.json" in line


def test_a_file_that_one_side_lacks_is_said(tree: Tree) -> None:
    pairing = pair_runs(tree("t", {"rank0": DEFAULT_RECORD_FILES}), tree("g", {"rank0": ONE}))
    assert [pair.target.name for pair in pairing.pairs] == [DUMP]
    assert any(DEBUG in line for line in pairing.missing)


def test_files_that_are_given_are_left_to_the_readers(tree: Tree) -> None:
    """Contents decide, whatever the files are called."""
    target, golden = tree("t", {"rank0": DEFAULT_RECORD_FILES}), tree("g", {"rank0": DEFAULT_RECORD_FILES})
    (pair,) = pair_runs(target / "rank0" / DUMP, golden / "rank0" / DEBUG).pairs
    assert (pair.target.name, pair.golden.name) == (DUMP, DEBUG)


# -- steps -----------------------------------------------------------------------------------------


def steps(**ranks: Iterable[str]) -> dict[str, Iterable[str]]:
    """``steps(step0=("rank0",))`` as directories."""
    return {f"{step}/{rank}": ONE for step, names in ranks.items() for rank in names}


def test_common_steps_pair_each_in_its_own_part(tree: Tree) -> None:
    target = tree("t", steps(step0=["rank"], step2=["rank0", "rank1"], step10=["rank0"]))
    golden = tree("g", steps(step2=["rank1", "rank0"], step10=["rank0"], step3=["rank0"]))
    pairing = pair_runs(target, golden)
    names = [(pair.part, pair.label) for pair in pairing.pairs]
    assert names == [("step2", "rank0"), ("step2", "rank1"), ("step10", "")]
    assert [pair.name for pair in pairing.pairs] == ["step2/rank0", "step2/rank1", "step10"]
    assert pairing.missing == ["Only the target has step0.", "Only the golden has step3."]


def test_a_single_step_needs_no_part(tree: Tree) -> None:
    target, golden = (tree(side, steps(step4=["rank0", "rank1"])) for side in "tg")
    assert [pair.part for pair in pair_runs(target, golden).pairs] == ["", ""]
    assert shown(pair_runs(target, golden / "step4")) == shown(pair_runs(target, golden))


def test_chosen_steps(tree: Tree) -> None:
    target, golden = (tree(side, steps(**{f"step{n}": ["rank0"] for n in range(4)})) for side in "tg")
    assert [pair.part for pair in pair_runs(target, golden, (0, 2, 3)).pairs] == ["step0", "step2", "step3"]
    assert [pair.part for pair in pair_runs(target, golden, (2,)).pairs] == [""]
    said = refusal(target, golden, (1, 7, 9))
    assert "has no step 7, 9" in said.what and said.choices == ("step0", "step1", "step2", "step3")
    assert "no step of it can be chosen" in refusal(target, golden / "step0", (0,)).what


def test_steps_and_ranks_may_be_chosen_together(tree: Tree) -> None:
    target, golden = (tree(side, steps(step0=["rank0", "rank1"], step1=["rank0", "rank1"])) for side in "tg")
    assert [pair.name for pair in pair_runs(target, golden, (0, 1), (1,)).pairs] == [
        "step0/rank1",
        "step1/rank1",
    ]


def test_several_steps_against_one_list_the_choices(tree: Tree) -> None:
    target, golden = tree("t", steps(step0=["rank0"], step1=["rank0"])), tree("g", steps(step1=["rank0"]))
    said = refusal(target, golden / "step1")
    assert "several steps" in said.what and said.choices == (str(target / "step0"), str(target / "step1"))
    assert [pair.name for pair in pair_runs(target, golden).pairs] == [""]


@pytest.mark.parametrize("steps_", [(), (0,)])
@pytest.mark.parametrize("other", ["t", "t/step1", "t/step1/rank0"])
def test_a_directory_that_holds_no_run_is_named_and_not_the_other(
    other: str, steps_: tuple[int, ...], tree: Tree
) -> None:
    run = tree("t", steps(step0=["rank0"], step1=["rank0", "rank1"]))
    empty = tree("empty", {"notes": ()})
    several = run.parent / other
    expected = f"There is no dump.json or debug.json in {empty}."
    assert refusal(empty, several, steps_).what == expected
    if not steps_ or other == "t":
        assert refusal(several, empty, steps_).what == expected


def test_no_step_in_common(tree: Tree) -> None:
    said = refusal(tree("t", steps(step0=["rank0"])), tree("g", steps(step1=["rank0"])))
    assert "holds step0 and" in said.what and "holds step1" in said.what
    assert "two steps" in said.fix


def test_steps_of_graph_and_pynative(tree: Tree) -> None:
    directories = {f"{part}/step{step}/rank0": ONE for part in ("pynative", "graph") for step in (1, 0)}
    target, golden = tree("t", directories), tree("g", directories)
    names = ["graph/step0", "graph/step1", "pynative/step0", "pynative/step1"]
    assert [pair.name for pair in pair_runs(target, golden).pairs] == names
    assert [pair.name for pair in pair_runs(target, golden, (1,)).pairs] == [names[1], names[3]]
    assert [pair.name for pair in pair_runs(target / "graph", golden / "pynative").pairs] == [
        "step0",
        "step1",
    ]


def test_a_part_that_one_side_lacks_is_said(tree: Tree) -> None:
    target = tree("t", {"graph/step0/rank0": ONE, "pynative/step0/rank0": ONE})
    pairing = pair_runs(target, tree("g", {"pynative/step0/rank0": ONE}))
    assert [pair.target.parent for pair in pairing.pairs] == [target / "pynative/step0/rank0"]
    assert pairing.missing == ["Only the target has graph/step0."]


def test_a_rank_that_one_step_lacks_is_said_with_the_step(tree: Tree) -> None:
    target = tree("t", steps(step0=["rank0", "rank1"], step1=["rank0", "rank1"]))
    golden = tree("g", steps(step0=["rank0", "rank1"], step1=["rank0", "rank2"]))
    pairing = pair_runs(target, golden)
    assert [pair.name for pair in pairing.pairs] == ["step0/rank0", "step0/rank1", "step1/rank0"]
    assert pairing.missing == [
        "Only the target has rank 1 in step1.",
        "Only the golden has rank 2 in step1.",
    ]


def test_an_empty_step_is_said_and_the_others_pair(tree: Tree) -> None:
    target = tree("t", {**steps(step0=["rank0"], step1=["rank0"]), "step2": ()})
    golden = tree("g", steps(step0=["rank0"], step1=["rank0"], step2=["rank0"]))
    pairing = pair_runs(target, golden)
    assert [pair.name for pair in pairing.pairs] == ["step0", "step1"]
    assert str(target / "step2") in pairing.damaged[0]


def test_a_file_called_like_a_step_is_none(tree: Tree) -> None:
    target, golden = (tree(side, steps(step0=["rank0"])) for side in "tg")
    for side in (target, golden):
        (side / "step1").write_text("a note")
    assert [pair.name for pair in pair_runs(target, golden).pairs] == [""]


# -- any ranks, against a reference ----------------------------------------------------------------

NAMES = ("rank", "rank0", "rank1", "rank01", "rank2", "rank10", "proc0", "proc5", "ranks", "notes")
SIDE = st.dictionaries(st.sampled_from(NAMES), st.sets(st.sampled_from(DEFAULT_RECORD_FILES)), max_size=5)
Side = dict[str, set[str]]


def known(side: Side) -> dict[str, int | None]:
    """The rank directories that hold a record, with their numbers."""
    found: dict[str, int | None] = {}
    for name, files in side.items():
        if files and (name == "rank" or re.fullmatch(r"(rank|proc)\d+", name)):
            found[name] = int(name[4:]) if name[:4] == "rank" and name != "rank" else None
    return found


def reference(ours: Side, theirs: Side) -> list[tuple[str, str, str, int, str]] | None:
    """Written from the rules alone; None where there is nothing to compare."""
    first, second = known(ours), known(theirs)
    single = len(first) == len(second) == 1
    pairs: list[tuple[str, str, str, int, str]] = []
    for (one, number), (other, partner) in product(first.items(), second.items()):
        free = single and (number is None or partner is None)
        if free or (number or 0) == (partner or 0):
            rank = next((n for n in (number, partner) if n is not None), 0)
            label = "" if single else f"rank{rank}"
            pairs += [
                (one, other, label, rank, file)
                for file in DEFAULT_RECORD_FILES
                if file in ours[one] and file in theirs[other]
            ]
    return sorted(pairs, key=lambda pair: (pair[3], DEFAULT_RECORD_FILES.index(pair[4]))) or None


@ON_DISK
@given(SIDE, SIDE)
def test_any_ranks_pair_as_the_rules_say(ours: Side, theirs: Side) -> None:
    for side in (ours, theirs):
        numbers = [number or 0 for number in known(side).values()]
        assume(len(numbers) == len(set(numbers)))
    wanted = reference(ours, theirs)
    with tempfile.TemporaryDirectory() as home:
        target, golden = plant(Path(home, "t"), ours), plant(Path(home, "g"), theirs)
        try:
            pairing = pair_runs(target, golden)
        except UserError:
            assert wanted is None
            return
    found = [
        (pair.target.parent.name, pair.golden.parent.name, pair.label, pair.rank, pair.target.name)
        for pair in pairing.pairs
    ]
    assert found == wanted
    assert all(pair.target.name == pair.golden.name and not pair.part for pair in pairing.pairs)
    said = "\n".join([*pairing.missing, *pairing.damaged])
    for side, whose in ((ours, 0), (theirs, 1)):
        for name, number in known(side).items():
            if name not in {pair[whose] for pair in found}:
                assert re.search(rf"\brank(s)? .*\b{number or 0}\b", said), "a rank that is left over is said"


@ON_DISK
@given(*[st.sets(st.integers(0, 12), max_size=5)] * 2, st.sets(st.integers(0, 12), max_size=2))
def test_any_steps_pair_as_the_rules_say(ours: set[int], theirs: set[int], wanted: set[int]) -> None:
    with tempfile.TemporaryDirectory() as home:
        sides = [
            plant(Path(home, name), {f"step{n}/rank0": ONE for n in numbers})
            for name, numbers in (("t", ours), ("g", theirs))
        ]
        common = sorted(ours & theirs & (wanted or ours))
        possible = bool(common) and wanted <= ours & theirs
        try:
            pairing = pair_runs(*sides, wanted)
        except UserError:
            assert not possible
            return
    assert possible
    assert [pair.part for pair in pairing.pairs] == (
        [f"step{n}" for n in common] if len(common) > 1 else [""] * len(common)
    )
    assert [int(pair.target.parent.parent.name[4:]) for pair in pairing.pairs] == common
    if not wanted:
        said = "\n".join(pairing.missing)
        assert set(map(int, re.findall(r"step(\d+)", said))) == ours ^ theirs


# -- formats that prescribe no more than the end of a name -----------------------------------------

SUFFIX = (DEFAULT_RECORD_FILES, (".txt",))


def found_below(path: Path) -> list[str]:
    pairs = pair_runs(path, path, formats=SUFFIX).pairs
    return [str(pair.target.relative_to(path)) for pair in pairs]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"": ["mine.txt"]}, ["mine.txt"]),
        ({"": [DUMP, "a.txt", "b.txt"]}, [DUMP]),
        ({"": ["notes.txt"], "rank0": ["x.txt"]}, ["rank0/x.txt"]),
        ({"rank0": [DUMP, "notes.txt"]}, [f"rank0/{DUMP}"]),
        ({"rank1": ["x.txt"], "rank0": ["y.txt"]}, ["rank0/y.txt", "rank1/x.txt"]),
        ({"step0/rank0": ["x.txt"]}, ["step0/rank0/x.txt"]),
        ({"tag_v2.3/rank0": ["x.txt"]}, ["tag_v2.3/rank0/x.txt"]),
        ({"tag_v4.0.T2/step1/rank7": ["x.txt"]}, ["tag_v4.0.T2/step1/rank7/x.txt"]),
    ],
)
def test_files_of_a_suffix_come_after_files_of_a_name(
    files: Mapping[str, Iterable[str]], expected: list[str], tmp_path: Path
) -> None:
    for directory, names in files.items():
        (tmp_path / directory).mkdir(parents=True, exist_ok=True)
        for name in names:
            (tmp_path / directory / name).write_text("{}")
    assert found_below(tmp_path) == expected


def test_several_files_of_a_suffix_are_not_chosen_among(tree: Tree) -> None:
    run = tree("t", {"rank0": ["a.txt", "b.txt"]})
    error = refusal(run, run, (), (), SUFFIX)
    assert error.what == f"{run / 'rank0'} holds several record files." and error.choices == (
        "a.txt",
        "b.txt",
    )


def test_two_versions_are_not_chosen_among(tree: Tree) -> None:
    run = tree("t", {"tag_v2.3/rank0": ["a.txt"], "tag_v3.0/rank0": ["a.txt"]})
    assert "There is no" in refusal(run, run, (), (), SUFFIX).what


def test_steps_pair_with_an_offset(tmp_path: Path) -> None:
    target, golden = (
        plant(tmp_path / run, {f"step{step}/rank": ["dump.json"] for step in steps})
        for run, steps in (("t", (0, 1, 4)), ("g", (2, 3, 4)))
    )
    pairing = pair_runs(target, golden, step_offset=2)
    steps = [(pair.part, pair.golden.parent.parent.name) for pair in pairing.pairs]
    assert steps == [("step0", "step2"), ("step1", "step3")]
    assert pairing.missing == ["Only the target has step4.", "Only the golden has step4."]
    (pair,) = pair_runs(target, golden, steps=[1], step_offset=2).pairs
    assert pair.golden.parent.parent.name == "step3"
