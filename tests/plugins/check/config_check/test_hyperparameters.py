"""Rules by which hyper-parameters match and differ; figures beside msprobe are in test_results_against_msprobe.py."""

from __future__ import annotations

from typing import Any

import pytest
from probe_check.config_check.hyperparameters import compare_hyperparameters, is_equal
from probe_check.config_check.rules import load_rules


def rows(bench: dict[str, Any], cmp: dict[str, Any]) -> list[tuple[Any, ...]]:
    result = compare_hyperparameters([("file", bench, cmp)], load_rules())
    return [row[1:] for row in result.rows]


@pytest.mark.parametrize(
    ("bench", "cmp", "expected"),
    [
        ("1e-4", 0.0001, True), ("1", "1.0", True), (64, "64", True), ("'a'", "a", True), (True, "True", True),
        (None, None, True), ("nan", float("nan"), True), ("inf", "inf", True), ("1e999999999", "1", False),
        (True, 1, False), ("1", True, False), (None, "None", False), ("a", "A", False), ("0.1", "0.10000001", False),
        ("0.1", 0.1, True), (-0.0, 0, True), ("", '""', True), ("1_0", "10", True),
        ("9007199254740993", 9007199254740992, False),
    ],
)  # fmt: skip
def test_values_are_compared_as_texts_and_as_exact_numbers(bench: Any, cmp: Any, expected: bool) -> None:
    assert is_equal(bench, cmp) is expected


def test_equal_names_are_matched_before_similar_ones() -> None:
    assert rows({"hidden_sizes": 1, "hidden_size": 2}, {"hidden_size": 2}) == [
        ("hidden_sizes", "Only in benchmark", "1", "", "", "warning")
    ]


@pytest.mark.parametrize(
    ("bench", "cmp", "expected"),
    [
        ({"a.lr": 1, "b.lr": 2}, {"b.lr": 2, "a.lr": 1}, []),
        ({"opt1.lr": 1, "opt2.lr": 2}, {"opt1.lr": 1}, [("opt2.lr", "Only in benchmark")]),
        ({"opt1.lr": 1}, {"opt1.lr": 1, "opt2.lr": 2}, [("Only in comparison", "opt2.lr")]),
        ({"a.max-lr": 1, "b.max-lr": 2}, {"b.max_lr": 2, "a.max_lr": 1}, []),
        ({"a.lr": 1, "b.lr": 2}, {"a.lr": 1, "c.lr": 3}, [("b.lr", "c.lr")]),
        ({"train.lr": 1}, {"lr": 2}, [("train.lr", "lr")]),
        ({"a.lr": 1, "b.lr": 2}, {"learning_rate": 3},
         [("Only in comparison", "learning_rate"), ("a.lr", "Only in benchmark"), ("b.lr", "Only in benchmark")]),
    ],
)  # fmt: skip
def test_equal_full_names_are_matched_before_unique_plain_names(
    bench: dict[str, Any], cmp: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert [row[:2] for row in rows(bench, cmp)] == expected


def test_flags_that_name_different_values_do_not_match_each_other() -> None:
    assert [row[:2] for row in rows({"bf16": True}, {"fp32": True})] == [
        ("Only in comparison", "fp32"), ("bf16", "Only in benchmark"),
    ]  # fmt: skip
    for names in (("compute_dtype", "fp32"), ("bf16", "compute_dtype")):
        assert [row[:2] for row in rows({names[0]: 1}, {names[1]: 2})] == [names]


def test_a_name_is_matched_once() -> None:
    found = rows({"hidden_sizes": 1, "hidden_sized": 2}, {"hidden_size": 1})
    assert [row[:2] for row in found] == [("hidden_sized", "Only in benchmark")]


def test_the_first_difference_is_the_one_that_changes_numbers() -> None:
    result = compare_hyperparameters([("f", {"log-dir": "a", "lr": 1}, {"log-dir": "b", "lr": 2})], load_rules())
    first = min(result.differences, key=lambda one: one.place)
    assert first.condition.name == "lr"


@pytest.mark.parametrize("name", ["hf-token", "wandb_api_key", "password", "train.auth_token", "aws-secret-id"])
def test_values_of_secrets_are_hidden(name: str) -> None:
    assert rows({name: "abc"}, {name: "abd"})[0][2:4] == ("(hidden)", "(hidden)")
    assert rows({name: "(hidden)"}, {name: "abd"}) == []


@pytest.mark.parametrize("name", ["max-tokens", "num-key-value-heads", "tokenizer", "key_size", "vocab_token_id"])
def test_other_names_are_shown(name: str) -> None:
    assert rows({name: 1}, {name: 2})[0][2:4] == ("1", "2")


def test_many_long_names_are_compared_in_bounded_time() -> None:
    bench = {f"{'x' * 200}{n}": 1 for n in range(2000)}
    assert len(rows(bench, {f"{name}y": 1 for name in bench})) == 4000
