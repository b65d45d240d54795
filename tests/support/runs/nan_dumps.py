"""Dumps in msprobe's layout, written from a short notation (tests/data/nan-analyze-cases.yaml).

A record is a line ``key: inputs -> outputs``; values are separated by spaces:

    f finite   p finite and trained   n nan   i inf   j -inf   m a mask (0 and -inf)   h norm 1000
    q nan, trained   t nan as text   d norm of nan beside finite extremes   b truth values   u no statistics
    [f n] nested   name=f by keyword   s:-inf a number   dst=s:1 rank or other number   g:0,1 a group
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parents[2] / "data"
CASES = DATA / "nan-analyze-cases.yaml"
EXPECTED = DATA / "nan-analyze-8.3.3.json"
DIFFERENCES = DATA / "nan-analyze-differences.yaml"
RECORDED = tuple(
    f"{run}/{side}"
    for run in ("stat_L1_edge", "tensor_L1_edge", "tensor_L1_dist2", "stat_mix_dist2", "tensor_L0_nested")
    for side in ("npu", "bench")
)
"""Recorded runs of mindstudio-probe 8.3.3 in tests/data/runs-8.3.3.zip."""
NAN, INF = math.nan, math.inf
_EXTREMES = {
    "f": (1.0, -1.0), "p": (1.0, -1.0), "n": (NAN, NAN), "i": (INF, -1.0), "j": (1.0, -INF), "m": (0.0, -INF),
    "h": (1000.0, -1.0), "q": (NAN, NAN), "d": (1.0, -1.0), "t": ("nan", "nan"),
}  # fmt: skip


def load_cases() -> dict[str, dict[str, Any]]:
    """Return the cases by name."""
    cases: dict[str, dict[str, Any]] = yaml.safe_load(CASES.read_text())
    return cases


def write_case(case: dict[str, Any], step: Path) -> Path:
    """Write the ranks of a case below a step directory, and return the directory."""
    for rank, lines in case["ranks"].items():
        name = rank if isinstance(rank, str) else f"rank{rank}"
        records = dict(_record(line) for line in lines)
        head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
        write_rank(step / name, {**head, **case.get("head", {})}, records, case)
    return step


def write_rank(
    directory: Path, head: dict[str, Any], records: dict[str, Any], case: dict[str, Any] | None = None
) -> None:
    """Write the files of one rank: dump.json, construct.json, stack.json."""
    case = case or {}
    directory.mkdir(parents=True)
    (directory / "dump.json").write_text(json.dumps({**head, "data": records}))
    modules = case.get("modules", {})
    construct = {key: modules.get(key) for key in records}
    stacks = {
        str(place): [[key], [f"File /app/train.py, line {place + 1}, in step, \n call()"]]
        for place, key in enumerate(records)
        if not (case.get("stacks") == "forward" and "backward" in key)
    }
    without = case.get("without", ())
    for file, content in (("construct.json", construct), ("stack.json", stacks)):
        if file not in without:
            (directory / file).write_text(json.dumps(content))


def _record(line: str) -> tuple[str, Any]:
    key, _, rest = line.partition(": ")
    received, _, returned = rest.partition("->")
    values = _values(received)
    positional = [value for name, value in values if not name]
    if key.endswith("parameters_grad"):
        return key, {name or "weight": [value] for name, value in values}
    outputs = [value for _, value in _values(returned)]
    if "backward" in key.split("."):
        return key, {"input": positional, "output": outputs}
    by_name = {name: value for name, value in values if name and not name.startswith("@")}
    record: dict[str, Any] = {"input_args": positional, "input_kwargs": by_name}
    parameters = {name[1:]: value for name, value in values if name.startswith("@")}
    return key, {**record, **({"parameters": parameters} if parameters else {}), "output": outputs}


def _values(text: str) -> list[tuple[str, Any]]:
    """Return the values of one side with their keywords."""
    values: list[tuple[str, Any]] = []
    nested: list[Any] | None = None
    for word in text.replace("[", " [ ").replace("]", " ] ").split():
        if word == "[":
            nested = []
        elif word == "]":
            values.append(("", nested))
            nested = None
        else:
            name, _, symbol = word.rpartition("=")
            if nested is not None:
                nested.append(value_of(symbol))
            else:
                values.append((name, value_of(symbol)))
    return values


def value_of(symbol: str) -> Any:
    """Return the recorded form of a value."""
    if symbol.startswith("g:"):
        ranks = [int(rank) for rank in symbol[2:].split(",")]
        return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": "x"}
    if symbol.startswith("s:"):
        number = float(symbol[2:]) if not symbol[2:].isdecimal() else int(symbol[2:])
        return {"type": type(number).__name__, "value": number}
    if symbol == "None":
        return None
    tensor: dict[str, Any] = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3]}
    if symbol in ("b", "u"):
        extremes: tuple[Any, Any] = (True, False) if symbol == "b" else (None, None)
        tensor["dtype"] = "torch.bool" if symbol == "b" else "torch.float32"
        more = dict.fromkeys(("Mean", "Norm"))
    else:
        extremes = _EXTREMES[symbol]
        numbers = [number for number in extremes if isinstance(number, float) and not math.isfinite(number)]
        norm = NAN if symbol in "nqtd" else INF if numbers else max(map(abs, extremes))
        more = {"Mean": numbers[0] if numbers else 0.0, "Norm": norm}
        if symbol == "t":
            more = {"Mean": "nan", "Norm": "nan"}
    return {**tensor, "Max": extremes[0], "Min": extremes[1], **more, "requires_grad": symbol in "pq"}
