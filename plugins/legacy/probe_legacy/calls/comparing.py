"""``compare``, ``compare_distributed`` and ``parse`` of ptdbg_ascend, and ``compare`` of torch_npu.hooks."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from probe_ranks.api import match_ranks

from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, write_text

KEYS = ("npu_pkl_path", "bench_pkl_path", "npu_dump_data_dir", "bench_dump_data_dir")
OPTIONS = ("stack_mode", "auto_analyze", "fuzzy_match")
STACK_PREFIX = "api_stack"
_RANK = re.compile(r"rank(\d+)")

before: list[Callable[[], None]] = []
"""Functions that write what is still being recorded, to be called before files are read."""


def compare(
    input_parma: Mapping[str, Any],
    output_path: str,
    stack_mode: bool = False,
    auto_analyze: bool = True,
    suffix: str = "",
    fuzzy_match: bool = False,
) -> None:
    """Write the table of ptdbg_ascend on two of its dumps, and its advice.

    Args:
        input_parma: ``npu_pkl_path``, ``bench_pkl_path`` and the directories of their tensors,
            ``npu_dump_data_dir`` and ``bench_dump_data_dir``.
        output_path: The directory of the result.
        stack_mode: True for files of mode ``api_stack``, False for others.
        auto_analyze: True to write the advice.
        suffix: A part of the names of the files.
        fuzzy_match: True to pair calls whose names differ in the count alone; for files of 3.0 and later.

    Raises:
        UserError: An argument is wrong, or a file cannot be read.
    """
    files = _check_files(input_parma)
    _check_flags(output_path, stack_mode=stack_mode, auto_analyze=auto_analyze, fuzzy_match=fuzzy_match)
    for path in files[:2]:
        if path.name.startswith(STACK_PREFIX) is not stack_mode:
            raise UserError(
                f"stack_mode is {stack_mode}, and {path.name} is {'no' if stack_mode else 'a'} file of mode api_stack.",
                f"Pass stack_mode={not stack_mode}, or two files of one mode.",
            )
    _write(files, Path(output_path), auto_analyze, suffix, fuzzy_match)


def _flush() -> None:
    for flush in before:
        flush()


Files = tuple[Path, Path, Path, Path]
"""The files of both dumps, and the directories of their tensors."""


def _write(files: Files, output: Path, advise: bool, suffix: str, fuzzy: bool) -> None:
    """Write the table and the advice on two dumps."""
    from probe_core import console  # which imports click
    from probe_legacy.compare.files import write_csv
    from probe_legacy.compare.ptdbg_table import create_ptdbg_table, format_advice

    _flush()
    with tempfile.TemporaryDirectory(prefix="probe_") as place:
        npu_dump = _link_next_to_data(files[0], files[2], Path(place, "npu"))
        bench_dump = _link_next_to_data(files[1], files[3], Path(place, "bench"))
        table = create_ptdbg_table(npu_dump, bench_dump, fuzzy=fuzzy)
    make_directory(output)
    label = f"_{suffix.removeprefix('_')}" if suffix else ""
    stamp = f"{label}_{datetime.now():%Y%m%d%H%M%S}"
    write_csv(output / f"compare_result{stamp}.csv", table)
    console.show(f"The table was written to {output / f'compare_result{stamp}.csv'}.")
    if advise:
        advice = format_advice(table)
        write_text(output / f"advisor{stamp}.txt", advice)
        console.show(advice, lines=True)


def _link_next_to_data(path: Path, data: Path, place: Path) -> Path:
    """Return a file whose tensors are in the directory of its stem: the file itself, or a link to it."""
    if not path.is_file():
        raise UserError(f"There is no dump {path}.", "Check the path.")
    if data.resolve() == path.with_suffix("").resolve():
        return path
    place.mkdir()
    (place / path.name).symlink_to(path.resolve())
    (place / path.stem).symlink_to(data.resolve())
    return place / path.name


def compare_distributed(npu_dump_dir: str, bench_dump_dir: str, output_path: str, **kwargs: Any) -> None:
    """Write the tables of ptdbg_ascend on all ranks of two runs.

    The ranks pair by number, or in order if no number is common to both runs.

    Args:
        npu_dump_dir: The directory that holds ``rank0``, ``rank1`` and so on.
        bench_dump_dir: The same of the other run.
        output_path: The directory of the results.
        **kwargs: ``stack_mode``, ``auto_analyze`` and ``fuzzy_match`` of ``compare``.

    Raises:
        UserError: An argument is wrong, the ranks differ, or a file cannot be read.
    """
    if unknown := kwargs.keys() - OPTIONS:
        raise UserError(f"compare_distributed takes no {min(unknown)}.", "It takes:", OPTIONS)
    _flush()
    npu_ranks, bench_ranks = _find_ranks(npu_dump_dir), _find_ranks(bench_dump_dir)
    matches = match_ranks(npu_ranks, bench_ranks)
    if not len(npu_ranks) == len(bench_ranks) == len(matches):
        raise UserError(
            f"{npu_dump_dir} holds the ranks {sorted(npu_ranks)}, "
            f"and {bench_dump_dir} the ranks {sorted(bench_ranks)}.",
            "Give two runs of the same ranks, or compare two ranks with compare().",
        )
    for number, bench_number in matches.items():
        files = _dump_in(npu_ranks[number]), _dump_in(bench_ranks[bench_number])
        runs = dict(zip(KEYS, (*files, *[file.with_suffix("") for file in files])))
        compare(runs, output_path, suffix=f"rank{number}-rank{bench_number}", **kwargs)


def _find_ranks(directory: Any) -> dict[int, Path]:
    root = _check_path(directory, "The directory of the ranks")
    ranks = {
        int(match[1]): path for path in (root.iterdir() if root.is_dir() else ())
        if (match := _RANK.fullmatch(path.name)) and path.is_dir()
    }  # fmt: skip
    if not ranks:
        raise UserError(f"{root} holds no directories rank0, rank1 and so on.", "Check the path.")
    return ranks


def _dump_in(directory: Path) -> Path:
    files = sorted(directory.glob("*.pkl"))
    if len(files) != 1:
        raise UserError(
            f"{directory} holds {len(files)} files .pkl, and one is compared.",
            "Compare single files with compare().",
        )
    return files[0]


def parse(pkl_file: str, module_name_prefix: str) -> None:
    """Print statistics and call stacks of the rows of a dump whose names begin with a prefix.

    Raises:
        UserError: The file cannot be read.
    """
    from probe_core import console
    from probe_legacy.parse_command import format_ptdbg_file

    _flush()
    for line in format_ptdbg_file(_check_path(pkl_file, "pkl_file"), module_name_prefix):
        console.show(line)


def compare_values(npu_pkl_path: str, bench_pkl_path: str, output_path: str, shape_flag: bool = False) -> None:
    """Write the table of torch_npu.hooks on two of its dumps.

    Args:
        npu_pkl_path: The first dump.
        bench_pkl_path: The second dump.
        output_path: The csv file to write.
        shape_flag: True to pair only calls whose values have the same dtypes and shapes.

    Raises:
        UserError: An argument is wrong, or a file cannot be read.
    """
    from probe_legacy.compare.files import write_csv
    from probe_legacy.compare.hooks_table import create_hooks_table

    _check_flags(output_path, shape_flag=shape_flag)
    _flush()
    files = _check_path(npu_pkl_path, "npu_pkl_path"), _check_path(bench_pkl_path, "bench_pkl_path")
    table = create_hooks_table(*files, with_shapes=shape_flag)
    make_directory(Path(output_path).absolute().parent)
    write_csv(Path(output_path), table)


def _check_files(paths: Any) -> Files:
    if not isinstance(paths, Mapping):
        raise UserError("The first argument of compare must be a dict.", "Give these keys:", KEYS)
    for key in KEYS:
        if key not in paths:
            raise UserError(f"compare needs {key}.", "Give these keys:", KEYS)
    npu, bench, npu_data, bench_data = (_check_path(paths[key], key) for key in KEYS)
    return npu, bench, npu_data, bench_data


def _check_path(value: Any, name: str) -> Path:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise UserError(f"{name} must be a path, not {value!r:.40}.", "Give it as a text.")
    return Path(value)


def _check_flags(output_path: Any, **flags: Any) -> None:
    _check_path(output_path, "output_path")
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise UserError(f"{name} must be True or False, not {value!r:.40}.", "Pass a bool.")
