"""Hyper-parameters of shell scripts: parsed, never executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_check.config_check import shell_script
from probe_check.config_check.rules import load_rules


def parameters(text: str) -> dict[str, str | bool]:
    return shell_script.parse_hyperparameters(text, load_rules())


def test_options_of_the_documented_forms_are_found() -> None:
    found = parameters(
        """#!/bin/bash
        # --not 1
        LR=1e-5
        LR=1e-4   # the last assignment counts
        NODES=$WORLD
        GPT_ARGS="
            --num-layers 4 \\
            --lr $LR \\
            --bf16 \\
            --min-lr -0.5
        "
        torchrun --nproc_per_node 8 --nnodes ${NODES} pretrain.py $GPT_ARGS --seed 1 # --later 2
        """
    )
    assert found == {
        "nproc_per_node": "8", "nnodes": "$WORLD", "num-layers": "4", "lr": "1e-4", "bf16": True,
        "min-lr": "-0.5", "seed": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("msrun --worker_num 8 train.py --lr 1", {"worker_num": "8", "lr": "1"}),
        ("python -m torch.distributed.launch --nnodes 2 t.py --lr 1", {"nnodes": "2", "lr": "1"}),
        ("python3 -m torch.distributed.run t.py --lr=0.5", {"lr": "0.5"}),
        ("python prepare.sh\npython3 -u train.py --lr 1", {"lr": "1"}),
        ("pip install deepspeed --upgrade\nsrun -n 8 torchrun t.py --lr 1", {"lr": "1"}),
        ("/usr/bin/torchrun t.py --lr 1#2 # --wd 3", {"lr": "1#2"}),
        ("echo --lr 1", {}),
        ("", {}),
        ("torchrun t.py --a 1 | tee --b 2", {"a": "1"}),
        ("torchrun t.py --a 1 > log --b 2", {"a": "1"}),
        ("torchrun t.py --a 1\ntorchrun u.py --b 2", {"a": "1"}),
        ("CUDA_VISIBLE_DEVICES=0 torchrun t.py --a 1", {"a": "1"}),
        ("torchrun --standalone t.py --a 1", {"standalone": True, "a": "1"}),
        ("torchrun t.py --betas 0.9 0.95 --flag", {"betas": "0.9 0.95", "flag": True}),
        ("torchrun t.py --name 'a $b' --other \"c d\"", {"name": "a $b", "other": "c d"}),
        ("A=(--lr 1 --name \"x y\")\ntorchrun t.py \"${A[@]}\"", {"lr": "1", "name": "x y"}),
        ("A=(--lr 1)\nA+=(--wd 2)\ntorchrun t.py ${A[@]}", {"lr": "1", "wd": "2"}),
        ("A=\"--lr 1\"\nA+=\" --wd 2\"\ntorchrun t.py $A", {"lr": "1", "wd": "2"}),
        ("D=/data\ntorchrun t.py --path $D/x --q \"${D}/y z\"", {"path": "/data/x", "q": "/data/y z"}),
        ("A=$B\nB=$A\ntorchrun t.py --x $A", {"x": "$A"}),
        ("torchrun t.py --x $(touch pwned) --y `touch pwned`", {"x": "$(touch pwned)", "y": "`touch pwned`"}),
        ("torchrun t.py --x \"unclosed", {"x": "\"unclosed"}),
    ],
)  # fmt: skip
def test_scripts_are_parsed_as_a_shell_would(
    text: str, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parameters(text) == expected
    assert not list(tmp_path.iterdir())


def test_values_that_grow_without_end_are_cut_off() -> None:
    lines = ["A0=xxxxxxxxxx", *(f'A{n}="$A{n - 1} $A{n - 1}"' for n in range(1, 40))]
    found = parameters("\n".join([*lines, 'torchrun t.py --x "$A39"']))
    assert len(str(found)) < 100_000


@pytest.mark.parametrize("text", ['"' * 20001, "${" * 20000, "$(" * 20000, "'" * 20001, "\\" * 20001, "(" * 20000])
def test_damaged_scripts_take_no_longer_than_others(text: str) -> None:
    parameters(f"torchrun t.py {text}")
