"""The command ``probe merge-result``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe_core import console
from probe_core.errors import UserError, format_count, suggest_name
from probe_core.files.user_files import describe_yaml_error, parse_yaml, read_regular_file
from probe_core.plugins.manager import Manager
from probe_core.terminal.exit_codes import EXIT_FINISHED, EXIT_USER_ERROR
from probe_core.terminal.plugin_options import collect_option_actions
from probe_core.terminal.spelling import Command, option
from probe_reporters.spreadsheet_text import neutralise

if TYPE_CHECKING:
    from probe_reporters.merge import MergeConfig

DEFAULT_OUTPUT = "./output"
CONFIG_KEYS = ("api", "compare_index")
EXAMPLE = "For example:"
EXAMPLE_LINES = ("api:", "  - Distributed.all_reduce", "compare_index:", "  - MaxAbsErr")
MAX_LISTED_RANKS = 8
"""Number of ranks that the summary lists."""
MAX_CONFIG_BYTES = 1 << 20
"""Largest size of a configuration in bytes."""


@click.command(cls=Command)
@option("-i", "--input", "directory", also=["--input_dir"], type=click.Path(path_type=Path),
    help="Directory with the results of all ranks (compare_result_rank{n}_… .xlsx, .csv or .jsonl).",
)  # fmt: skip
@option("-o", "--output", also=["--output_dir"], is_flag=False, flag_value=DEFAULT_OUTPUT,
    default=DEFAULT_OUTPUT, type=click.Path(path_type=Path),
    help="Directory of the merged result; created if absent.  [default: ./output]")  # fmt: skip
@option("--config", also=["-config", "--config_path"], type=click.Path(path_type=Path),
    help="YAML file, needed with -i: the list api, and the list compare_index of metrics "
    "(default: all).")  # fmt: skip
@option("--format", "format_", type=click.Choice(("xlsx", "csv", "jsonl")), default="xlsx", show_default=True,
    help="One workbook, or a file for each metric.")  # fmt: skip
@click.pass_context
def merge_result(
    ctx: click.Context,
    directory: Path | None,
    output: Path,
    config: Path | None,
    format_: str,
) -> int:
    """Merge the results of several ranks, so that each metric shows all ranks side by side.

    \b
    probe merge-result -i results -o merged --config config.yaml
    probe merge-result --check-collectives npu_dump/step0 -o merged
    """
    manager = ctx.find_object(Manager) or Manager()
    option_actions = collect_option_actions(ctx, manager)
    if not option_actions and directory is None and config is None:
        raise UserError(
            "Results to merge are needed.",
            "Give a directory with -i and what to merge with --config, or a run with --check-collectives.",
        )
    if (directory is None) is not (config is None):
        lacking = "--config, a YAML file that lists the APIs to merge" if config is None else "-i, the results"
        raise UserError(
            f"Nothing can be merged without {lacking}.",
            "Give both: probe merge-result -i out --config apis.yaml, where apis.yaml holds lines such as "
            '"api: [Torch.matmul.0.forward]".',
        )
    code = EXIT_FINISHED
    if directory is not None and config is not None:
        code = _merge(directory, output, config, format_)
    for action, values in option_actions:
        code = action(manager, output, format_, values) or code
    return code


def _merge(directory: Path, output: Path, config: Path, format_: str) -> int:
    from probe_reporters.merge import merge_results

    selection, warnings = read_config(config), list[str]()
    try:
        with console.show_progress():
            merged = merge_results(directory, output, selection, format=format_, warn=warnings.append)
    finally:
        for text in warnings:
            console.warn(text)
    ranks = ", ".join(str(rank) for rank in merged.ranks[:MAX_LISTED_RANKS])
    if len(merged.ranks) > MAX_LISTED_RANKS:
        ranks += f", … {merged.ranks[-1]}"
    metrics = format_count(len(merged.metrics), "metric")
    console.show(f"{format_count(merged.row_count, 'row')} of {len(merged.ranks):,} ranks ({ranks}) merged, {metrics}")
    for path in merged.files:
        console.show(f"  wrote {path}")
    if merged.damaged:
        console.error(
            f"Left out: {format_count(len(merged.damaged), 'damaged result file')}.",
            "Compare these ranks again, then merge again.",
            merged.damaged,
        )
        return EXIT_USER_ERROR
    return EXIT_FINISHED


# -- the configuration ----------------------------------------------------------------------


def read_config(path: Path) -> MergeConfig:
    """Return the selection of rows and metrics in a yaml file.

    Raises:
        UserError: The file cannot be read, or is not a valid selection.
    """
    from probe_reporters.merge import MergeConfig

    value = _load(path)
    subject = f'The configuration "{path}"'
    if not isinstance(value, dict):
        raise UserError(f"{subject} is not a mapping with the key api.", EXAMPLE, EXAMPLE_LINES)
    for key in value:
        if key not in CONFIG_KEYS:
            close = suggest_name(str(key), CONFIG_KEYS)
            hint = f"Did you mean {close}? Known keys:" if close else "Known keys:"
            raise UserError(f'{subject} has an unknown key "{key}".', hint, CONFIG_KEYS)
    apis = tuple(map(neutralise, _parse_texts(value.get("api"), f"{subject}: api", EXAMPLE)))  # as results hold them
    if not apis:
        raise UserError(f"{subject} lists no API under api.", EXAMPLE, EXAMPLE_LINES)
    metric_names = value.get("compare_index")
    metrics = (
        ()
        if metric_names is None
        else _parse_texts(metric_names, f"{subject}: compare_index", "Leave it out for all, or:")
    )
    _check_metrics(subject, metrics)
    return MergeConfig(apis, metrics)


def _load(path: Path) -> Any:
    import yaml

    try:
        if path.is_file() and path.stat().st_size > MAX_CONFIG_BYTES:
            raise UserError(f'The configuration "{path}" is larger than 1 MiB.', "Give a yaml file.")
        return parse_yaml(read_regular_file(path).decode("utf-8-sig"))
    except OSError as error:
        raise UserError(
            f'The configuration "{path}" cannot be read: {error.strerror or error}.',
            "Check the path given with --config.",
        ) from None
    except UnicodeDecodeError:
        raise UserError(f'The configuration "{path}" is not UTF-8.', "Save it as UTF-8.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserError(
            f'The configuration "{path}" is not valid yaml{describe_yaml_error(error)}.', EXAMPLE, EXAMPLE_LINES
        ) from None


def _parse_texts(value: Any, subject: str, fix: str) -> tuple[str, ...]:
    """Return the texts in the list ``value``, each once."""
    if not isinstance(value, list):
        problem = "is missing" if value is None else "is not a list"
        raise UserError(f"{subject} {problem}.", fix, EXAMPLE_LINES)
    for number, item in enumerate(value, 1):
        if not isinstance(item, str) or not item.strip():
            problem = "is empty" if item is None or isinstance(item, str) else f"is {_describe_type(item)}, not a text"
            raise UserError(
                f"{subject}, entry {number}, {problem}.", "Write one name per entry, in quotes if necessary."
            )
    return tuple(dict.fromkeys(value))


def _describe_type(item: object) -> str:
    kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return kinds.get(type(item), "something else")


def _check_metrics(subject: str, metrics: Iterable[str]) -> None:
    from probe_reporters.results import MERGEABLE_COLUMNS

    known_metrics = list(dict.fromkeys(name for choices in MERGEABLE_COLUMNS.values() for name in choices))
    for metric in metrics:
        if metric not in known_metrics:
            close = suggest_name(metric, known_metrics)
            hint = f"Did you mean {close}? Known metrics:" if close else "Known metrics:"
            raise UserError(f'{subject}: compare_index has an unknown metric "{metric}".', hint, known_metrics)
    if not any(set(metrics) <= set(choices) for choices in MERGEABLE_COLUMNS.values()):
        raise UserError(
            f"{subject}: compare_index mixes metrics of different modes, and no result has all of them.",
            "Choose metrics of one mode:",
            [f"{mode.value}: {', '.join(choices)}" for mode, choices in MERGEABLE_COLUMNS.items()],
        )
