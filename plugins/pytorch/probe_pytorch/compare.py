"""The function interface that scripts of msprobe call (docs/comparing.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe_core.model.report import Report

KEYS = {
    "npu_json_path": "npu_path",
    "bench_json_path": "bench_path",
    "stack_json_path": "stack_path",
    "is_print_compare_log": "is_print_compare_log",
}
"""The keys of ``input_param``, each with its key in a compare file."""


def compare(
    input_param: Mapping[str, Any],
    output_path: str,
    stack_mode: bool = False,
    auto_analyze: bool = True,
    fuzzy_match: bool = False,
    highlight: bool = False,
    data_mapping: str | Mapping[str, str] | None = None,
) -> list[Report]:
    """Compare two runs recorded from PyTorch; torch is not imported.

    Args:
        input_param: ``npu_json_path``, ``bench_json_path``, and optionally ``stack_json_path``
            and ``is_print_compare_log`` (True prints the summary).
        output_path: Directory of the result files; created if absent.
        stack_mode: Show call stacks; takes effect only with a ``stack_json_path``.
        auto_analyze: Write the advisor's file.
        fuzzy_match: Pair calls whose names differ in the call index.
        highlight: Mark suspicious rows.
        data_mapping: A yaml file that pairs row names, or the names themselves.

    Returns:
        A report for each pair of ranks, in their order.

    Raises:
        UserError: An argument of the wrong type, or input that cannot be compared. A rank that cannot be
            compared is named when the others are done; their results are kept.
    """
    from probe_ranks.api import parse_run_paths

    from probe_core import console
    from probe_core.library import Comparison, create_plan
    from probe_core.plugins.manager import Manager

    _check_arguments(
        input_param,
        output_path,
        {"stack_mode": stack_mode, "auto_analyze": auto_analyze, "fuzzy_match": fuzzy_match, "highlight": highlight},
    )
    runs = parse_run_paths(input_param, "input_param", KEYS)
    options = {
        "output": output_path,
        "framework": "pytorch",
        "fuzzy": fuzzy_match,
        "mapping": data_mapping or None,
        "stack": None if runs.stack is None else stack_mode,
        "stack_path": runs.stack,
        "highlight": highlight,
        "advise": auto_analyze,
        "answer": auto_analyze,
        "executor": "threads",
    }
    manager = Manager()
    comparison = Comparison(create_plan(manager, runs.target, runs.golden, options), manager)
    for problem in comparison.problems:
        console.warn(problem)
    results = list(comparison.run())
    if runs.print_log:
        for conclusion in (*comparison.first, *comparison.last):
            conclusion.show()
    _raise_errors(results, comparison.damaged)
    return [result.report for result in results if result.report is not None]


def _raise_errors(results: Sequence[Any], damaged: Sequence[str]) -> None:
    """Raise a UserError that lists the ranks that cannot be compared."""
    from probe_core.errors import UserError

    errors = [f"{result.pair.name}: {result.error.what}" for result in results if result.error is not None]
    errors += damaged
    if errors:
        raise UserError(
            f"{len(errors)} of {len(results) + len(damaged)} ranks cannot be compared; the others are.",
            "Mend these, or leave them out:",
            errors,
        )


def _check_arguments(input_param: Any, output_path: Any, flags: Mapping[str, Any]) -> None:
    """Raise a UserError for an argument of the wrong type."""
    from probe_core.errors import UserError

    for name, value in flags.items():
        if not isinstance(value, bool):
            raise UserError(f"{name} must be True or False, not {value!r:.40}.", "Pass a bool.")
    if not isinstance(input_param, Mapping):
        raise UserError("input_param must be a dict.", "Pass npu_json_path and bench_json_path in it.")
    if not isinstance(output_path, str):
        raise UserError("output_path must be a str.", "Pass the directory of the result files.")


def compare_distributed(npu_dump_dir: str, bench_dump_dir: str, output_path: str, **kwargs: Any) -> list[Report]:
    """Compare the ranks of two runs; torch is not imported.

    Args:
        npu_dump_dir: The directory of the target's step, which holds a directory a rank.
        bench_dump_dir: The same of the golden.
        output_path: Directory of the result files.
        **kwargs: The optional arguments of ``compare``; ``stack_mode`` has no effect here.

    Raises:
        UserError: An argument of the wrong type, or input that cannot be compared.
    """
    from probe_core.errors import UserError

    if "suffix" in kwargs:
        raise UserError("compare_distributed takes no suffix.", "Leave it out; names carry the rank.")
    for name, value in (("npu_dump_dir", npu_dump_dir), ("bench_dump_dir", bench_dump_dir)):
        if not isinstance(value, str):
            raise UserError(f"{name} must be a str.", "Pass the directory of a step.")
    print_log = kwargs.pop("is_print_compare_log", True)
    kwargs.pop("stack_mode", None)
    runs = {
        "npu_json_path": npu_dump_dir,
        "bench_json_path": bench_dump_dir,
        "is_print_compare_log": print_log,
    }
    return compare(runs, output_path, **kwargs)
