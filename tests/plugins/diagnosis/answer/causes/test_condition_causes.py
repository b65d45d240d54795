"""Causes that are conditions: another random state or another batch, on recorded models."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_diagnosis.answer.causes.condition_causes import BatchDifference, classify_batch_difference
from probe_diagnosis.answer.verdict.all_ranks import merge_answers
from probe_diagnosis.conditions.differences import ConditionDifference, ConditionKind
from probe_diagnosis.phases.phases_file import read_phases
from support.probe import Probe
from support.runs.recording import recording
from torch import nn
from torch.nn import functional as F

from probe_core.model.answers import Answer, Condition, Coverage, Outcome

Step = Callable[[nn.Module], torch.Tensor]


class Net(nn.Module):
    """An embedding, a dropout and two layers."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.norm = nn.LayerNorm(16, eps=eps)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.norm(self.embed(tokens))))


TOKENS = torch.arange(24).reshape(4, 6) * 7 % 50


def record(path: Path, seed: int, tokens: torch.Tensor = TOKENS, step: Step | None = None, **fields: Any) -> Path:
    """Return the run of one step of the net, whose parameters do not depend on the random seed."""
    torch.manual_seed(0)
    model = Net(fields.pop("eps", 1e-5))
    torch.manual_seed(seed)
    with recording(path, **{"level": "mix", **fields}) as found:
        found.start(model)
        loss = model(tokens).square().mean() if step is None else step(model)
        loss.backward()
        found.stop()
        found.step()
    return path


def compare(probe: Probe, target: Path, golden: Path, output: Path) -> dict[str, Any]:
    assert probe("compare", target, golden, "-o", output) == 0, probe.err
    (path,) = output.glob("answer_*.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("level", ["mix", "L1", "L0"])
def test_another_random_seed_is_the_cause_and_not_the_dropout(
    tmp_path: Path, probe: Probe, level: str, task: str
) -> None:
    runs = [record(tmp_path / str(seed), seed, level=level, task=task) for seed in (1, 2)]
    answer = compare(probe, *runs, tmp_path / "o")
    assert answer["verdict"] == "DIVERGED"
    assert [cause["op"] for cause in answer["causes"]] == ["conditions.random_state"]
    assert answer["causes"][0]["evidence"]["target_seed"] == 1
    assert "the random seed of torch differs (1 against 2)" in answer["sentence"]
    (condition,) = [one for one in answer["conditions"] if one["kind"] == "random_state"]
    assert (condition["target"], condition["golden"]) == ("1", "2")
    assert "condition: the random seed of torch differs (1 against 2)" in probe.out
    (advisor,) = (tmp_path / "o").glob("advisor_*.txt")
    assert "Expert Advice: The conditions of the two runs differ: the random seed" in advisor.read_text()


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_dropout_on_another_device_draws_other_numbers(tmp_path: Path, probe: Probe, task: str) -> None:
    target, golden = (record(tmp_path / str(seed), seed, task=task) for seed in (1, 2))
    (path,) = target.rglob("conditions.json")
    path.write_text(path.read_text().replace('"torch"', '"cuda:0"'))
    answer = compare(probe, target, golden, tmp_path / "o")
    assert [cause["op"] for cause in answer["causes"]] == ["conditions.random_state"]
    clause = "draws random numbers from cuda:0 in the target and from torch in the golden"
    assert clause in answer["sentence"]


def test_a_fault_before_the_dropout_is_still_named(tmp_path: Path, probe: Probe) -> None:
    target = record(tmp_path / "t", 1, eps=0.1)
    golden = record(tmp_path / "g", 2)
    answer = compare(probe, target, golden, tmp_path / "o")
    ops = [cause["op"] for cause in answer["causes"]]
    assert "Functional.layer_norm.0.forward" in ops
    assert "the random seed of torch differs" in answer["sentence"]
    assert "Functional.layer_norm.0.forward was called with a different argument (eps" in answer["sentence"]


def test_a_fault_with_equal_seeds_is_no_condition(tmp_path: Path, probe: Probe) -> None:
    target, golden = record(tmp_path / "t", 1, eps=0.1), record(tmp_path / "g", 1)
    answer = compare(probe, target, golden, tmp_path / "o")
    assert answer["causes"][0]["op"] == "Functional.layer_norm.0.forward"
    assert answer["conditions"] == []


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_another_order_of_the_batch_is_the_cause_and_not_the_embedding(tmp_path: Path, probe: Probe, task: str) -> None:
    target = record(tmp_path / "t", 1, TOKENS.flip(0), task=task)
    golden = record(tmp_path / "g", 1, task=task)
    answer = compare(probe, target, golden, tmp_path / "o")
    assert [cause["op"] for cause in answer["causes"]] == ["conditions.batch"]
    assert answer["conditions"][0]["kind"] == "batch"


def test_a_call_of_one_run_that_draws_is_the_cause(tmp_path: Path, probe: Probe) -> None:
    def extra(model: nn.Module) -> torch.Tensor:
        F.dropout(torch.ones(9), 0.5)
        return model(TOKENS).square().mean()

    def plain(model: nn.Module) -> torch.Tensor:
        F.relu(torch.ones(9))
        return model(TOKENS).square().mean()

    target = record(tmp_path / "t", 1, step=extra)
    golden = record(tmp_path / "g", 1, step=plain)
    answer = compare(probe, target, golden, tmp_path / "o")
    assert answer["causes"][0]["op"] == "Functional.dropout.0.forward", answer["sentence"]
    assert not answer["sentence"].startswith("DIVERGED: Functional.dropout.1")


def test_a_draw_that_is_not_recorded_accuses_no_call(tmp_path: Path, probe: Probe) -> None:
    def extra(model: nn.Module) -> torch.Tensor:
        torch.rand(3)
        return model(TOKENS).square().mean()

    runs = [record(tmp_path / "t", 1, step=extra), record(tmp_path / "g", 1)]
    answer = compare(probe, *runs, tmp_path / "o")
    assert answer["causes"][0]["op"] == "conditions.random_state"
    assert "the random state of torch differs" in answer["sentence"]


def test_equal_runs_state_no_condition_even_if_python_was_not_seeded(tmp_path: Path, probe: Probe) -> None:
    runs = []
    for name in "tg":
        random.seed()
        runs.append(record(tmp_path / name, 1))
    answer = compare(probe, *runs, tmp_path / "o")
    assert answer["verdict"] == "AGREE" and answer["conditions"] == []


def test_an_argument_that_was_drawn_is_stated_with_the_random_state(tmp_path: Path, probe: Probe) -> None:
    def mixed(model: nn.Module) -> torch.Tensor:
        model.eval()
        return (model(TOKENS) * random.random()).square().mean()

    runs = []
    for seed in (1, 2):
        random.seed(seed)
        runs.append(record(tmp_path / str(seed), 1, step=mixed))
    answer = compare(probe, *runs, tmp_path / "o")
    assert "the random state of python differs, and Tensor.__mul__.0.forward was called" in answer["sentence"]
    assert [cause["op"] for cause in answer["causes"]] == [
        "conditions.random_state",
        "Tensor.__mul__.0.forward",
    ]


def test_batch_that_a_differing_call_computes_is_no_other_batch(tmp_path: Path, probe: Probe) -> None:
    """The difference is in code before the model, so the batch is its consequence."""

    def create_step(factor: float) -> Step:
        def step(model: nn.Module) -> torch.Tensor:
            values = torch.linspace(-1, 1, TOKENS.numel()).reshape(TOKENS.shape)
            noise = torch.cat([torch.from_numpy(values.numpy() * factor), values])  # the factor is not recorded
            return model((noise.abs() * 10).long()).square().mean()

        return step

    runs = [record(tmp_path / str(factor), 1, step=create_step(factor)) for factor in (0.5, 1.0)]
    answer = compare(probe, *runs, tmp_path / "o")
    assert answer["causes"][0]["op"] == "Torch.cat.0.forward" and answer["conditions"] == []
    assert "another batch" not in answer["sentence"] and "phases" not in answer["causes"][0]["evidence"]


def test_a_written_argument_is_not_explained_by_a_generator_that_was_not_seeded(tmp_path: Path, probe: Probe) -> None:
    def draw(model: nn.Module) -> torch.Tensor:
        random.random()
        return model(TOKENS).square().mean()

    runs = []
    for name, eps in (("t", 0.1), ("g", 1e-5)):
        random.seed()
        runs.append(record(tmp_path / name, 1, step=draw, eps=eps))
    answer = compare(probe, *runs, tmp_path / "o")
    assert [cause["op"] for cause in answer["causes"]] == ["Functional.layer_norm.0.forward"]
    assert [condition["kind"] for condition in answer["conditions"]] == ["random_state"]


def test_runs_without_conditions_say_so(tmp_path: Path, probe: Probe) -> None:
    runs = [record(tmp_path / "t", 1), record(tmp_path / "g", 1)]
    for path in runs[1].rglob("conditions.json"):
        path.unlink()
    answer = compare(probe, *runs, tmp_path / "o")
    assert answer["verdict"] == "AGREE" and answer["unknown_conditions"] == ["golden"]
    assert "the conditions of the golden, which were not recorded" in probe.out


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 9}', '{"schema": 1, "facts": [], "random": 3}', "{" * 5000]
)
def test_damaged_conditions_are_unknown(tmp_path: Path, probe: Probe, text: str) -> None:
    runs = [record(tmp_path / "t", 1), record(tmp_path / "g", 1)]
    for path in runs[0].rglob("conditions.json"):
        path.write_text(text)
    answer = compare(probe, *runs, tmp_path / "o")
    assert answer["unknown_conditions"] == ["target"]


def test_a_condition_of_one_rank_names_it() -> None:
    def answer(rank: int, *conditions: Condition) -> Answer:
        return Answer(Outcome.AGREE, "…", (), Coverage(1, 1), conditions=conditions)

    one = Condition("environment", "OMP_NUM_THREADS", "1", "", "the variable differs")
    version = Condition("versions", "torch", "2.1", "2.2", "the version differs")
    answers = {f"step{step}/rank{rank}": answer(rank, version._replace(rank=rank), *([one._replace(rank=1)] * rank))
               for step in (0, 1) for rank in (0, 1)}  # fmt: skip
    whole = merge_answers(answers, [], 0, is_multi_rank=True)
    assert [found.text for found in whole.conditions] == [
        "on rank 1, the variable differs",
        "the version differs",
    ]
    single = {f"step{step}": answer(0, one) for step in (0, 1)}
    assert [found.text for found in merge_answers(single, [], 0).conditions] == ["the variable differs"]


@pytest.mark.parametrize("tokens", [(TOKENS + 1) % 50, TOKENS.flip(0), TOKENS[:2]], ids=["values", "order", "size"])
def test_another_batch_is_the_cause_without_the_phases_of_the_step(
    tmp_path: Path, probe: Probe, tokens: torch.Tensor
) -> None:
    runs = [record(tmp_path / "t", 1, tokens), record(tmp_path / "g", 1)]
    for path in [path for run in runs for path in run.rglob("step_phases.json")]:
        path.unlink()
    answer = compare(probe, *runs, tmp_path / "o")
    assert answer["causes"][0]["op"] == "conditions.batch"


def test_a_mask_of_infinities_in_one_run_is_another_batch_and_no_other_order(tmp_path: Path) -> None:
    difference = ConditionDifference(ConditionKind.BATCH, "input.mask", "float32[2] a", "float32[2] b")
    finite = {"Max": 0.0, "Min": -3.4e38, "Mean": -1.7e38, "Norm": 3.4e38}
    infinite = {"Max": 0.0, "Min": float("-inf"), "Mean": float("-inf"), "Norm": float("inf")}

    def phases(name: str, numbers: dict[str, float]) -> Any:
        leaf = {
            "type": "torch.Tensor",
            "dtype": "torch.float32",
            "shape": [2],
            "requires_grad": False,
            **numbers,
        }
        step_phase = {"phase": "batch", "number": 0, "stack": [], "facts": {}, "values": {"input.mask": leaf}}
        (tmp_path / name).mkdir(exist_ok=True)
        content = {"schema": 2, "framework": "pytorch", "not_captured": {}, "phases": [step_phase]}
        (tmp_path / name / "step_phases.json").write_text(json.dumps(content))
        return read_phases(tmp_path / name)

    both = phases("t", infinite), phases("g", finite)
    assert classify_batch_difference(difference, both, 1e-5) is BatchDifference.VALUES
    assert classify_batch_difference(difference, both[::-1], 1e-5) is BatchDifference.VALUES
    assert classify_batch_difference(difference, (both[0], both[0]), 1e-5) is BatchDifference.UNKNOWN
    assert classify_batch_difference(difference, (both[1], None), 1e-5) is BatchDifference.UNKNOWN
