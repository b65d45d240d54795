"""Made-up inputs that an API takes: each rule of the table is run with the API that it is for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_precheck.fitting import RecordedArguments, find_input_rule
from probe_pytorch.precheck.apis import PLACES, NoSuchApi, find_function
from probe_pytorch.precheck.random_tensors import create_generator
from probe_pytorch.precheck.rebuild import fit_tensor
from probe_pytorch.precheck.references import load_reference_specs
from probe_pytorch.precheck.rules import rules
from support.cases import every
from support.runs.prechecked import PASS, Prechecked, call, leaf, live, value, written
from support.runs.recorded import forward
from support.sampling import examples

INPUTS: Mapping[str, Mapping[int, Mapping[str, Any]]] = rules("inputs")
Named = list[tuple[str, Any]]


def reals(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def whole(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def along(api: str, first: str = "input", source: bool = True) -> tuple[str, Named]:
    """A call that indexes dimension 1 of (4, 6)."""
    index = whole(5) if api.startswith("index") else whole(4, 5)
    more = [("source" if api.startswith("index") else "src", reals(4, 5))] if source else []
    return f"Torch.{api}", [(first, reals(4, 6)), ("dim", 1), ("index", index), *more]


def in_place(api: str, source: bool = True) -> tuple[str, Named]:
    name, arguments = along(api, source=source)
    return name.replace("Torch", "Tensor"), arguments


CASES: dict[str, tuple[str, Named]] = {
    "embedding": ("Functional.embedding", [("input", whole(3, 4)), ("weight", reals(7, 2))]),
    "embedding_bag": (
        "Functional.embedding_bag", [("input", whole(9)), ("weight", reals(7, 2)), ("offsets", whole(4))],
    ),
    "one_hot": ("Functional.one_hot", [("tensor", whole(5)), ("num_classes", 4)]),
    "cross_entropy": ("Functional.cross_entropy", [("input", reals(8, 5)), ("target", whole(8))]),
    "nll_loss": ("Functional.nll_loss", [("input", reals(8, 5, 3)), ("target", whole(8, 3))]),
    "multi_margin_loss": ("Functional.multi_margin_loss", [("input", reals(8, 5)), ("target", whole(8))]),
    "gather": along("gather", source=False),
    "take_along_dim": ("Torch.take_along_dim", [("input", reals(4, 6)), ("indices", whole(4, 5)), ("dim", 1)]),
    "take": ("Torch.take", [("input", reals(4, 6)), ("index", whole(9))]),
    "index_select": along("index_select", source=False),
    "index_add": along("index_add"),
    "index_add_": in_place("index_add_"),
    "index_copy": along("index_copy"),
    "index_copy_": in_place("index_copy_"),
    "index_fill": (along("index_fill", source=False)[0], [*along("index_fill", source=False)[1], ("value", 2.0)]),
    "index_fill_": (in_place("index_fill_")[0], [*in_place("index_fill_", source=False)[1], ("value", 2.0)]),
    "scatter": along("scatter"),
    "scatter_": in_place("scatter_"),
    "scatter_add": along("scatter_add"),
    "scatter_add_": in_place("scatter_add_"),
    "scatter_reduce": (along("scatter_reduce")[0], [*along("scatter_reduce")[1], ("reduce", "sum")]),
    "scatter_reduce_": (in_place("scatter_reduce_")[0], [*in_place("scatter_reduce_")[1], ("reduce", "amax")]),
    "searchsorted": ("Torch.searchsorted", [("sorted_sequence", reals(3, 8)), ("input", reals(3, 5))]),
    "bucketize": ("Torch.bucketize", [("input", reals(20)), ("boundaries", reals(6))]),
    "scaled_dot_product_attention": (
        "Functional.scaled_dot_product_attention",
        [(name, reals(2, 4, 3)) for name in ("query", "key", "value")] + [("attn_mask", -10 * reals(4, 4).abs())],
    ),
    "multi_head_attention_forward": (
        "Functional.multi_head_attention_forward",
        [*((name, reals(4, 2, 6)) for name in ("query", "key", "value")), ("embed_dim_to_check", 6), ("num_heads", 2),
         ("in_proj_weight", reals(18, 6)), ("in_proj_bias", reals(18)), ("bias_k", None), ("bias_v", None),
         ("add_zero_attn", False), ("dropout_p", 0.0), ("out_proj_weight", reals(6, 6)), ("out_proj_bias", reals(6)),
         ("training", True), ("key_padding_mask", None), ("need_weights", True), ("attn_mask", reals(4, 4))],
    ),
    "cholesky": ("Torch.cholesky", [("input", reals(5, 5))]),
    "linalg.cholesky": ("Torch.linalg.cholesky", [("A", reals(3, 5, 5))]),
    "cholesky_inverse": ("Torch.cholesky_inverse", [("input", reals(4, 4))]),
    "binary_cross_entropy": (
        "Functional.binary_cross_entropy", [("input", reals(9).sigmoid()), ("target", reals(9).sigmoid())],
    ),
}  # fmt: skip


def described(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return leaf(item)
    return None if item is None else value(item)


def widened(item: Any, rule: Mapping[str, Any]) -> Any:
    """A description whose recorded range holds values that the API does not take."""
    if "extremes" in rule or "positive_definite" in rule or "sorted" in rule:
        return item
    low, high = (-3.0, 5.0) if "probabilities" in rule else (-100, 1000)
    return {**item, "Min": low, "Max": high}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Prechecked:
    """Return a runner of calls that are not in the run."""
    return written(tmp_path_factory.mktemp("run"), {"Torch.neg.0.forward": forward(leaf(torch.ones(2)))})


def run(calls: Prechecked, api: str, keywords_from: int) -> Any:
    """The case of an API, its arguments from a position on by keyword; what it was called with, in order."""
    name, named = CASES[api]
    given_: list[Any] = [described(item) for _, item in named]
    for place, rule in INPUTS[api].items():
        if place < len(given_):
            given_[place] = widened(given_[place], rule)
    keywords = {key: item for (key, _), item in zip(named[keywords_from:], given_[keywords_from:])}
    calls.calls[f"{name}.0"] = call(f"{name}.0", *given_[:keywords_from], **keywords)
    found = calls[f"{name}.0"]
    if "is now removed" in found.text:
        pytest.skip(f"this torch has no {name}")
    assert found.result.forward is PASS, found.text
    arguments = found.outcome.kept.arguments
    return [*arguments.positional, *arguments.keywords.values()]


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(INPUTS)


@pytest.mark.parametrize("by", ["position", "keyword"])
@pytest.mark.parametrize("api", INPUTS)
def test_the_api_runs_with_what_is_made_up(calls: Prechecked, api: str, by: str) -> None:
    """And what is made up is what the rule promises."""
    arguments = run(calls, api, len(CASES[api][1]) if by == "position" else 1)
    for place, rule in INPUTS[api].items():
        tensor = arguments[place]
        if "index_of" in rule:
            shape = arguments[rule["index_of"]["argument"]].shape
            dim = rule["index_of"]["dim"]
            size = math.prod(shape) if dim == "all" else shape[1 if dim == "dim" else dim]
            assert tensor.min() >= 0
            assert tensor.max() < size
            assert len(tensor.unique()) > 1, "all are clamped to one end"
        if rule.get("unique"):
            lines = tensor if tensor.ndim == 2 else tensor[None]
            assert all(len(line.unique()) == len(line) for line in lines)
        if "below" in rule:
            assert tensor.min() >= 0
            assert tensor.max() < arguments[rule["below"]["argument"]]
        if "sorted" in rule or "offsets_of" in rule:
            assert torch.equal(tensor, tensor.sort(-1).values)
        if "offsets_of" in rule:
            assert tensor[0] == 0
        if "extremes" in rule:
            assert len(tensor.unique()) == 2
        if "probabilities" in rule:
            assert tensor.min() >= 0
            assert tensor.max() <= 1


def test_the_case_shows_that_each_rule_is_needed(calls: Prechecked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rules, no case with indices runs and holds what is promised."""
    monkeypatch.setattr("probe_pytorch.precheck.rebuild.find_input_rule", lambda rules, api, place: None)
    for api in (
        "embedding",
        "cross_entropy",
        "gather",
        "index_copy_",
        "linalg.cholesky",
        "binary_cross_entropy",
    ):
        with pytest.raises(AssertionError):
            run(calls, api, len(CASES[api][1]))


# the table


def is_known(api: str) -> bool:
    """Is there such a function in torch, or such a fused operator?"""
    for scope in PLACES:
        try:
            find_function(scope, api)
        except NoSuchApi:
            continue
        return True
    return api in {spec.name for spec in load_reference_specs()} | {"empty_with_format"}  # of torch_npu


@every(
    "section",
    ["never_raised", "hf32", "not_run", "no_backward", "gradient_of_output", "dtypes", "changed", "made_deterministic",
     "random", "inputs", "dtype_by_position", "dim"],
)  # fmt: skip
def test_the_table_names_only_apis_that_torch_has(section: str) -> None:
    assert not [api for api in rules(section) if not is_known(api)]


def test_the_table_is_consistent() -> None:
    """Rules by "dim" know where it is; a position and a name go together."""
    for api, by_position in INPUTS.items():
        for place, rule in by_position.items():
            assert isinstance(place, int), api
            if rule.get("index_of", {}).get("dim") == "dim":
                assert api in rules("dim"), api


def test_every_dtype_of_the_table_is_one() -> None:
    for dtypes in (rules("raise"), *rules("dtypes").values()):
        for low, high in dtypes.items():
            assert isinstance(getattr(torch, low), torch.dtype)
            assert isinstance(getattr(torch, high), torch.dtype)


# rules alone


def fit(api: str, place: int, tensor: torch.Tensor, *positional: Any, **keywords: Any) -> torch.Tensor:
    rule = find_input_rule(rules, api, place)
    assert rule is not None
    return fit_tensor(tensor, api, rule, RecordedArguments(positional, keywords), create_generator(1, "a"))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 8), st.integers(-2, 1), st.integers(0, 99))
def test_scatter_never_writes_a_place_twice(rows: int, columns: int, count: int, dim: int, seed: int) -> None:
    """Indices are distinct if there are enough places, and within them in any case."""
    shape = [rows, columns]
    own = list(shape)
    own[dim] = count
    tensor = torch.randint(-9, 99, own, generator=torch.Generator().manual_seed(seed))
    found = fit("scatter", 2, tensor, leaf(torch.ones(shape)), value(dim), leaf(tensor))
    assert (found.shape, found.dtype) == (tensor.shape, tensor.dtype)
    if count:
        assert found.min() >= 0
        assert found.max() < shape[dim]
    if 0 < count <= shape[dim]:
        assert all(len(line.unique()) == len(line) for line in found.movedim(dim, -1).reshape(-1, count))


def test_targets_that_are_probabilities_are_left_as_they_are() -> None:
    target = torch.rand(8, 5)
    assert torch.equal(fit("cross_entropy", 1, target.clone(), leaf(torch.ones(8, 5))), target)


def test_a_target_of_one_sample() -> None:
    """(classes,) and a 0-d target."""
    found = fit("cross_entropy", 1, torch.tensor(70), leaf(torch.ones(5)))
    assert 0 <= found < 5


def test_offsets_start_at_0() -> None:
    offsets = torch.tensor([7, 3, 40])
    assert fit("embedding_bag", 2, offsets, leaf(torch.ones(9))).tolist() == [0, 7, 9]


def test_a_bool_mask_is_left_as_it_is() -> None:
    mask = torch.tensor([[True, False]])
    assert torch.equal(fit("scaled_dot_product_attention", 3, mask.clone()), mask)


def test_unknown_sizes_leave_the_index_as_it_is() -> None:
    index = torch.tensor([70])
    assert fit("gather", 2, index.clone(), leaf(torch.ones(5))).tolist() == [70]


def test_recorded_data_are_never_changed(tmp_path: Path) -> None:
    """A rule is for what is made up: the run's own indices, repeated and negative, stay."""
    index = torch.tensor([[0, 0, 5], [1, 1, 1]])
    found = live(tmp_path / "run", lambda: torch.scatter(torch.zeros(2, 6), 1, index, torch.ones(2, 3)))
    assert torch.equal(found["Torch.scatter.0"].outcome.kept.arguments.positional[2], index)
