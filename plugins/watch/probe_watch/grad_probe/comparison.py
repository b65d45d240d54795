"""The comparison of the gradients of two runs, and its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_reporters.api import neutralise

from probe_core.errors import UserError, format_count, format_list
from probe_core.files.atomic import make_directory, write_text
from probe_core.safe_text import format_safe_json
from probe_watch.grad_probe import sentences
from probe_watch.grad_probe.page import render_page
from probe_watch.grad_probe.rules import GradientSuspect, find_first_suspect, find_main_suspect, load_rules
from probe_watch.grad_probe.run_reader import RankRun, open_run
from probe_watch.grad_probe.sentences import convert_to_json
from probe_watch.grad_probe.similarity import PairGap, RankComparison, compare_rank
from probe_watch.grad_probe.summary_file import write_csv

CSV_FILE = "similarities.csv"
ANSWER_FILE = "grad_answer.json"
PAGE_FILE = "grad_compare.html"
SUMMARY_ROW = "summary"


@dataclass(frozen=True, slots=True)
class GradComparison:
    """The result of comparing the gradients of two runs.

    Attributes:
        target: The directory of the run under test.
        golden: The directory of the reference run.
        ranks: The comparison of each common rank.
        suspects: The first suspicious gradient of each parameter, in the order of ranks and of the model.
        main: The suspect that the verdict names; None if there are none.
        skipped_ranks: Ranks that only one of the runs has.
        skipped_steps: The number of steps of a rank that only one of the runs has, by rank.
    """

    target: Path
    golden: Path
    ranks: tuple[RankComparison, ...]
    suspects: tuple[GradientSuspect, ...]
    main: GradientSuspect | None
    skipped_ranks: tuple[int, ...]
    skipped_steps: dict[int, int]

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        return sentences.format_verdict(self.ranks, self.main)

    def write(self, output: str | Path) -> list[Path]:
        """Write ``similarities.csv`` for each rank, the page and ``grad_answer.json``; return their paths.

        Raises:
            UserError: A file cannot be written.
        """
        root = Path(output)
        paths = []
        for rank in self.ranks:
            directory = root / f"rank{rank.rank}"
            make_directory(directory)
            write_csv(directory / CSV_FILE, list(_iterate_csv_rows(rank)))
            paths.append(directory / CSV_FILE)
        write_text(root / PAGE_FILE, render_page(self.ranks, self.suspects, self.main, (self.target, self.golden)))
        write_text(root / ANSWER_FILE, format_safe_json(self.as_json(), indent=2) + "\n")
        return [*paths, root / PAGE_FILE, root / ANSWER_FILE]

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``grad_answer.json``."""
        paths = {"target": str(self.target), "golden": str(self.golden)}
        skipped = {
            "skipped_ranks": list(self.skipped_ranks),
            "skipped_steps": {str(rank): count for rank, count in self.skipped_steps.items()},
        }
        return {**convert_to_json(self.ranks, self.suspects, self.main), **paths, **skipped}


def compare_gradients(target: str | Path, golden: str | Path, output: str | Path | None = None) -> GradComparison:
    """Compare the gradients of two runs that the task ``grad_probe`` recorded at level L1 or L2.

    Args:
        target: The ``dump_path`` of the run under test.
        golden: The ``dump_path`` of the reference run.
        output: The directory of the result files; None to write none.

    Raises:
        UserError: A run cannot be read, or both have no rank, step or gradient in common.

    Example::

        comparison = probe_watch.compare_gradients("npu", "gpu", "out")
        print(comparison.sentence)
    """
    if output is not None:
        make_directory(Path(output))
    runs = open_run(Path(target)), open_run(Path(golden))
    steps = _find_common_steps_of_ranks(*runs)
    ranks = tuple(compare_rank(runs[0][rank], runs[1][rank], numbers) for rank, numbers in steps.items() if numbers)
    _require_measured(ranks)
    suspects = tuple(_find_suspects(ranks))
    comparison = GradComparison(
        Path(target),
        Path(golden),
        ranks,
        suspects,
        find_main_suspect(suspects),
        tuple(sorted(runs[0].keys() ^ runs[1].keys())),
        {rank: _count_skipped_steps(runs[0][rank], runs[1][rank], numbers) for rank, numbers in steps.items()},
    )
    if output is not None:
        comparison.write(output)
    return comparison


def _find_common_steps_of_ranks(target: dict[int, RankRun], golden: dict[int, RankRun]) -> dict[int, tuple[int, ...]]:
    """Return the steps to compare of each common rank.

    Raises:
        UserError: There are none.
    """
    common_ranks = sorted(target.keys() & golden.keys())
    if not common_ranks:
        raise UserError(
            f"The runs have no rank in common: the target has {_format_ranks(target)}, the golden run "
            f"{_format_ranks(golden)}.",
            "Record the same ranks in both runs, or compare the directories of two ranks.",
        )
    steps = {rank: _find_common_steps(target[rank], golden[rank]) for rank in common_ranks}
    if not any(steps.values()):
        raise _create_error([*target.values(), *golden.values()])
    return steps


def _find_suspects(ranks: tuple[RankComparison, ...]) -> Iterator[GradientSuspect]:
    rules = load_rules()
    for rank in ranks:
        for series in rank.series:
            suspect = find_first_suspect(series, rank.rank, rules)
            if suspect is not None:
                yield suspect


def _find_common_steps(target: RankRun, golden: RankRun) -> tuple[int, ...]:
    common = sorted({*target.steps} & {*golden.steps})
    return tuple(step for step in common if target.has_signs(step) and golden.has_signs(step))


def _count_skipped_steps(target: RankRun, golden: RankRun, steps: tuple[int, ...]) -> int:
    return len({*target.steps, *golden.steps} - {*steps})


def _create_error(runs: list[RankRun]) -> UserError:
    if any(not run.has_signs(step) for run in runs for step in run.steps):
        return UserError(
            "The runs have no signs of gradients to compare: at grad_level L0 only statistics are written.",
            'Record both runs with "grad_level": "L1" or "L2".',
        )
    return UserError("The runs have no step in common.", 'Record both runs with the same "step" in the configuration.')


def _require_measured(ranks: tuple[RankComparison, ...]) -> None:
    """Raise a UserError if no gradient could be compared."""
    pairs = [(series.parameter, pair) for rank in ranks for series in rank.series for pair in series.pairs.values()]
    if any(pair.agreement is not None for _, pair in pairs):
        return
    if any(pair.gap in (PairGap.TARGET_ONLY, PairGap.GOLDEN_ONLY) for _, pair in pairs):
        return
    for name, pair in pairs:
        if pair.gap is not None and pair.gap is not PairGap.NEITHER:
            raise UserError(
                f"No gradient could be compared. {name}: {sentences.format_gap(pair)}.",
                "Record both runs again with the same model.",
            )
    lists = [
        format_list(name for rank in ranks for name in getattr(rank, side)) for side in ("target_only", "golden_only")
    ]
    raise UserError(
        "The runs have no parameter in common.",
        f"The target has {lists[0] or 'none'}; the golden run has {lists[1] or 'none'}.",
    )


def _iterate_csv_rows(rank: RankComparison) -> Iterator[list[str]]:
    yield ["step", *map(str, rank.steps)]
    for series in rank.series:
        agreements = [series.pairs[step].agreement for step in rank.steps]
        yield [neutralise(series.parameter), *("" if a is None else repr(a.similarity) for a in agreements)]
    yield [SUMMARY_ROW, *(repr(rank.compute_summary(step).similarity) for step in rank.steps)]


def _format_ranks(runs: dict[int, RankRun]) -> str:
    return f"{format_count(len(runs), 'rank')} ({format_list(runs)})"


class GradComparator:
    """The comparison under msprobe's name."""

    @staticmethod
    def compare_distributed(path1: str, path2: str, output_dir: str) -> GradComparison:
        """Compare the gradients of two runs, and write the result files to ``output_dir``.

        Args:
            path1: The ``dump_path`` of the run under test.
            path2: The ``dump_path`` of the reference run.
            output_dir: The directory of the result files.

        Raises:
            UserError: A run cannot be read, or both have no rank, step or gradient in common.
        """
        return compare_gradients(path1, path2, output_dir)
