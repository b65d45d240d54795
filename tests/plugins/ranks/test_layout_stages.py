"""Stages, which are directories between a step and its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from probe_ranks.layout import find_ranks, pair_runs

from probe_core.errors import UserError
from probe_core.store.files import DEFAULT_RECORD_FILES

ONE = (DEFAULT_RECORD_FILES[0],)


def plant(root: Path, ranks: Mapping[str, Iterable[str]]) -> Path:
    """Create directories below ``root``, each with these empty files."""
    for name, files in ranks.items():
        (root / name).mkdir(parents=True)
        for file in files:
            (root / name / file).write_text("{}")
    return root


def refuse(target: Path, golden: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        pair_runs(target, golden)
    return caught.value


def test_stages_pair_by_name(tmp_path: Path) -> None:
    places = [f"step{step}/{stage}/rank{rank}" for step in (0, 1) for stage in ("actor", "critic") for rank in (0, 1)]
    target, golden = (
        plant(tmp_path / "t", dict.fromkeys(places, ONE)),
        plant(tmp_path / "g", dict.fromkeys(places, ONE)),
    )
    assert [pair.name for pair in pair_runs(target, golden).pairs] == places
    assert [pair.part for pair in pair_runs(target, golden, (1,), (1,)).pairs] == ["step1/actor", "step1/critic"]
    names = [pair.name for pair in pair_runs(target / "step0", golden / "step1").pairs]
    assert names == ["actor/rank0", "actor/rank1", "critic/rank0", "critic/rank1"]
    pairs = pair_runs(target / "step0/actor", golden / "step1/critic").pairs
    assert [pair.name for pair in pairs] == ["rank0", "rank1"]
    assert list(find_ranks(target, (0,))) == ["step0/actor", "step0/critic"]


def test_the_only_stage_of_the_only_step_is_named(tmp_path: Path) -> None:
    target = plant(tmp_path / "t", {"step3/actor/rank": ONE})
    assert [pair.name for pair in pair_runs(target, target).pairs] == ["step3/actor"]


def test_stages_pair_with_an_offset_of_steps(tmp_path: Path) -> None:
    target, golden = plant(tmp_path / "t", {"step0/actor/rank": ONE}), plant(tmp_path / "g", {"step2/actor/rank": ONE})
    (pair,) = pair_runs(target, golden, step_offset=2).pairs
    assert pair.name == "step0/actor" and pair.golden.parent.parent.parent.name == "step2"


def test_stages_that_only_one_run_has_are_reported(tmp_path: Path) -> None:
    target = plant(tmp_path / "t", {"step0/rank": ONE, "step0/actor/rank": ONE, "step0/critic/rank": ONE})
    golden = plant(tmp_path / "g", {"step0/rank": ONE, "step0/actor/rank": ONE, "step0/actor/dump_tensor_data/x": ONE})
    pairing = pair_runs(target, golden)
    assert [pair.name for pair in pairing.pairs] == ["step0", "step0/actor"]
    assert pairing.missing == ["Only the target has step0/critic."]
    pairing = pair_runs(target / "step0", golden / "step0")
    assert [pair.name for pair in pairing.pairs] == ["", "actor"]
    assert pairing.missing == ["Only the target has critic."]


def test_several_stages_do_not_pair_with_one(tmp_path: Path) -> None:
    run = plant(tmp_path / "t", {"step0/actor/rank": ONE, "step0/critic/rank": ONE})
    message = refuse(run, run / "step0/actor")
    assert "holds several stages" in message.what
    assert [Path(name).name for name in message.choices] == ["actor", "critic"]
    assert "no step or stage" in refuse(run, plant(tmp_path / "g", {"step0/rank": ONE})).fix


def test_a_directory_of_runs_is_no_step_with_stages(tmp_path: Path) -> None:
    run = plant(tmp_path / "t", {"mine/rank0": ONE, "other/rank0": ONE})
    assert "There is no" in refuse(run, run).what


def test_a_stage_without_records_is_left_out(tmp_path: Path) -> None:
    target = plant(tmp_path / "t", {"step0/actor/rank": ONE, "step1/actor/rank": ["stack.json"]})
    golden = plant(tmp_path / "g", {"step0/actor/rank": ONE, "step1/actor/rank": ONE})
    pairing = pair_runs(target, golden)
    assert [pair.name for pair in pairing.pairs] == ["step0/actor"]
    assert len(pairing.missing) == 1 and not pairing.damaged
