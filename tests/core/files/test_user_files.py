"""Files that have no end, and files that stand for more than there is time for, are refused in a sentence."""

from __future__ import annotations

import itertools
import os
import random
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from support.cases import every
from support.measuring import PROPERTY
from support.programs import preloaded
from support.runs.details_csv import output, row, write
from support.runs.recorded import forward, tensor, write_run
from support.sampling import sampled

from probe_core.errors import UserError
from probe_core.files import user_files
from probe_core.files.user_files import MAX_NUMBER, parse_numbers, parse_yaml

SHORT, LONG = 20, 3000
GOOD = {f"Torch.exp.{n}.forward": forward(tensor(), output=[tensor()]) for n in range(2)}
MERGES = "\n".join(["a0: &a0 {k: v}"] + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9)])
LAUGHS = "\n".join(["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)])
BOMBS = {
    "merge keys": MERGES,
    "aliases": LAUGHS,
    "an alias of itself": "a: &a [*a]",
    "a merge of itself": "&a {<<: *a, b: c}",
    "deep": "[" * 5000,
    "deep and closed": "a: " + "[" * 800 + "]" * 800,
    "a number in base 60": "a: 1" + ":1" * 60_000,
    "a long number": "a: " + "9" * 100_000,
}
Given = Callable[[Path, Path], list[Any]]


def sides(home: Path) -> list[Path]:
    return [write_run(home / side / "rank0", GOOD).parent for side in "tg"]


def mapping(option: str) -> Given:
    return lambda home, path: ["compare", *sides(home), "-o", home / "o", "--format", "csv", option, path]


def merge(home: Path, path: Path) -> list[Any]:
    return ["merge_result", "-i", home, "-config", path, "-o", home / "o"]


def details(home: Path, path: Path) -> list[Any]:
    return ["api_precision_compare", "-npu", path, "-gpu", path.with_name("other.csv"), "-o", home / "o"]


def assigned(home: Path, path: Path) -> list[Any]:
    found = [write(home / f"{side}.csv", [row(output("benchmark"))]) for side in ("npu", "gpu")]
    return ["api_precision_compare", "-npu", found[0], "-gpu", found[1], "-o", home / "o", "--assign", path]


def run_ut(home: Path, path: Path) -> list[Any]:
    return ["run_ut", "-api_info", sides(home)[0] / "dump.json", "-o", home / "o", "-config", path]


YAML: dict[str, Given] = {
    "-dm": mapping("-dm"),
    "-am": mapping("-am"),
    "-cm": mapping("-cm"),
    "-lm": mapping("-lm"),
    "merge": merge,
    "assigned": assigned,
    "run_ut": run_ut,
}
OTHERS: dict[str, Given] = {
    "compare file": lambda home, path: ["compare", "-i", path, "-o", home / "o"],
    "a run": lambda home, path: ["compare", path, sides(home)[1], "-o", home / "o"],
    "details": details,
    "a run to check": lambda home, path: ["run_ut", "-api_info", path, "-o", home / "o"],
    "a result to resume": lambda home, path: [*run_ut(home, path)[:-2], "-csv_path", path],
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("given_as", YAML)
def test_yaml_is_bounded(probe: Any, tmp_path: Path, given_as: str, bomb: str) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(BOMBS[bomb])
    assert probe(*YAML[given_as](tmp_path, path)) == 2, probe.err
    assert "Traceback" not in probe.err and str(path) in probe.err
    assert len(probe.err) < 2000


def test_nodes_are_counted_behind_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aliases of exactly the most nodes are built, those of one more are not."""
    import yaml

    text = "a: &a [1, 2, 3]\nb: [*a, *a]\nc: {<<: {d: *a}}"
    found = {"a": [1, 2, 3], "b": [[1, 2, 3]] * 2, "c": {"d": [1, 2, 3]}}
    assert parse_yaml(text) == yaml.safe_load(text) == found
    monkeypatch.setattr(user_files, "MAX_NODES", 25)
    assert parse_yaml(text) == found
    monkeypatch.setattr(user_files, "MAX_NODES", 24)
    with pytest.raises(yaml.YAMLError, match="more than 24 values"):
        parse_yaml(text)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize(
    "given_as, kind",
    sampled(
        itertools.product([*YAML, *OTHERS], ["pipe", "socket", "device", "directory"]),
        0.2, lambda case: case[1] == "pipe" or case[0] == "-dm",
    ),
)  # fmt: skip
def test_regular_files_alone(tmp_path: Path, given_as: str, kind: str) -> None:
    """In a process of its own: one that waits is ended."""
    if given_as == "a run" and kind == "directory":
        pytest.skip("a directory is what a run is given as")
    path = tmp_path / "x_dump.json"
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            here = Path.cwd()
            os.chdir(tmp_path)  # the path of a socket has little room
            listener.bind(path.name)
            os.chdir(here)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()
        command = [*(YAML | OTHERS)[given_as](tmp_path, path)]
        done = preloaded.run(
            [sys.executable, "-m", "probe_core.cli", *map(str, command)],
            capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and path.name in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["dump.json", "stack.json", "construct.json"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_pipes_within_a_run(tmp_path: Path, name: str, ranks: int) -> None:
    """A rank whose records are no file fails alone; call stacks and modules are found missing."""
    roots = [tmp_path / side for side in "tg"]
    for root in roots:
        for rank in range(ranks):
            write_run(root / f"rank{rank}", GOOD)
    (roots[0] / "rank0" / name).unlink(missing_ok=True)
    os.mkfifo(roots[0] / "rank0" / name)
    command = ["compare", *map(str, roots), "-o", str(tmp_path / "o"), "--format", "csv", "-j", "1"]
    done = preloaded.run(
        [sys.executable, "-m", "probe_core.cli", *command],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == (2 if name == "dump.json" else 0), done.stderr
    assert "Traceback" not in done.stderr
    results = list((tmp_path / "o").glob("compare_result*.csv"))
    assert len(results) == ranks - (name == "dump.json")


def damaged(data: bytes, random_: random.Random) -> bytes:
    """The bytes with some of them changed, cut out, doubled, or put in from a list that parsers know."""
    content = bytearray(data)
    for _ in range(random_.randint(1, 6)):
        at = random_.randrange(len(content) + 1)
        end = min(len(content), at + random_.choice((1, 1, 2, 8, 40)))
        how = random_.randrange(4)
        if how == 0:
            content[at:end] = random_.randbytes(end - at)
        elif how == 1:
            del content[at:end]
        elif how == 2:
            content[at:at] = content[at:end] * random_.randint(1, 30)
        else:
            content[at:at] = random_.choice(TOKENS)
    return bytes(content)


TOKENS = (
    b"&a ", b"*a", b"<<: *a\n", b"!!python/object:os.system ", b"- ", b"? ", b"{", b"}", b"[", b"]", b": ", b"'",
    b'"', b"|\n", b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf", b"---\n", b"%YAML 9.9\n", b"2001-99-99", b"0x", b".inf",
    b"9" * 5000, b"1:" * 600, b"null", b"true", b"\\ud800", b"\xe2\x80\xa8",
)  # fmt: skip
TEXTS = {
    "-dm": "Torch.exp.0.forward.input.0: Torch.exp.0.forward.input.0\nTorch.exp.1.forward.input.0: 'x'\n",
    "-am": "- {ms_api: Mint.add, pt_api: Torch.add, ms_args: [0], pt_args: [0]}\n",
    "-cm": "fc1.Dense: linear1.Linear\nfc2.Dense: &a linear2.Linear\n",
    "-lm": "TransformerLayer: {attention: self_attn}\nOther:\n  a: b\n",
    "merge": "api:\n  - Distributed.all_reduce\ncompare_index:\n  - MaxAbsErr\n",
    "compare file": '{"npu_path": "t", "bench_path": "g", "stack_path": "", "is_print_compare_log": true}',
}


@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
@pytest.mark.parametrize("given_as", TEXTS)
def test_fuzzed(probe: Any, tmp_path: Path, monkeypatch: Any, given_as: str, count: int) -> None:
    """Whatever is done to the bytes of a file, the command ends with a table or a sentence."""
    monkeypatch.chdir(tmp_path)
    random_ = random.Random(given_as)
    path = tmp_path / "given"
    command = (YAML | OTHERS)[given_as](tmp_path, path)
    for number in range(count):
        data = damaged(TEXTS[given_as].encode(), random_)
        path.write_bytes(data)
        assert probe(*command) in (0, 2), f"{number}: {data!r}\n{probe.err}"
        assert "Traceback" not in probe.err, data


# -- numbers and ranges ----------------------------------------------------------------------------


@PROPERTY
@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 500), st.none() | st.integers(0, 40)), min_size=1, max_size=6),
    st.sampled_from([",", ", ", " ,"]),
)
def test_numbers_and_ranges(parts: list[tuple[int, int | None]], comma: str) -> None:
    text = comma.join(str(first) if more is None else f"{first}-{first + more}" for first, more in parts)
    wanted = {number for first, more in parts for number in range(first, first + (more or 0) + 1)}
    assert parse_numbers(text, "--step") == tuple(sorted(wanted))


@PROPERTY
@hypothesis.given(st.text(st.sampled_from("0123456789,- x"), max_size=8))
def test_any_text_is_numbers_or_refused(text: str) -> None:
    part = r"\s*\d+(-\d+)?\s*"
    ranges = [piece.strip().split("-") for piece in text.split(",")]
    sound = bool(re.fullmatch(rf"{part}(,{part})*", text)) and all(
        int(ends[0]) <= int(ends[-1]) <= MAX_NUMBER for ends in ranges
    )
    try:
        found = parse_numbers(text, "--step")
    except UserError:
        assert not sound
        return
    assert sound
    assert list(found) == sorted(set(found)) and found[0] >= 0


@every("text", ["", " ", ",", "1,", "-", "1-", "-1", "2-1", "1-2-3", "1.5", "a", "½", "1000001", "0-9999999"])  # fmt: skip
def test_what_is_no_number_is_quoted(text: str) -> None:
    with pytest.raises(UserError, match=r'^--step: ".*" is no ') as caught:
        parse_numbers(text, "--step")
    assert "2-4" in caught.value.what


def test_a_number_beyond_all_limits() -> None:
    with pytest.raises(UserError):
        parse_numbers("9" * 5000, "--step")
