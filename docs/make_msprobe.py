"""The page for users of msprobe, which ``make_reference.py`` writes from the commands, options, fields and columns.

This file contains the commands and options of msprobe. Their counterparts are looked up in the code, which must
accept every spelling.
"""

from __future__ import annotations

import click
from probe_recording.settings import config
from probe_recording.settings.destination import PROBE_FIELDS
from probe_reporters.tables import COLUMNS

from probe_core.cli.main import cli
from probe_core.model import Mode
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import CommandSpec
from probe_core.terminal.plugin_options import add_plugin_options
from probe_core.terminal.spelling import list_spellings

RELEASES = {
    "msprobe 1.0 and 8.3": {
        "compare": "-i --input_path -o --output_path -s --stack_mode -c --compare_only -f --fuzzy_match -hl --highlight "
        "-dm --data_mapping -da --diff_analyze -am --api_mapping -cm --cell_mapping -lm --layer_mapping",
        "merge_result": "-i --input_dir -o --output_dir -config --config_path",
        "run_ut": "-api_info --api_info_file -o --out_path -save_error_data -j --jit_compile -d --device "
        "-csv_path --result_csv_path -f --filter_api -config --config_path",
        "multi_run_ut": "-api_info --api_info_file -o --out_path -n --num_splits -d --device -save_error_data "
        "-j --jit_compile -csv_path --result_csv_path -f --filter_api -config --config_path",
        "api_precision_compare": "-npu --npu_csv_path -gpu --gpu_csv_path -o --out_path",
        "nan_analyze": "-i --input_path -o --output_path",
        "run_overflow_check": "-api_info --api_info_file -j --jit_compile -d --device",
        "config_check": "-d --dump -c --compare -o --output",
    },
    "msprobe 26": {
        "compare": "-tp --target_path -gp --golden_path -o --output_path --xlsx -fm -dm -da -am -cm -lm -tensor_log",
        "merge_result": "-i --input_dir -o --output_dir -config --config_path",
        "acc_check": "-api_info --api_info_file -o --out_path -save_error_data -d -csv_path -f -config",
        "multi_acc_check": "-api_info --api_info_file -o --out_path -n -d -save_error_data -csv_path -f -config",
        "api_precision_compare": "-npu -gpu -o --out_path",
        "overflow_check": "-i --input_path -o --output_path",
    },
}
"""Commands of msprobe with the spellings of their options."""
ELSEWHERE = {
    "`msprobe graph`, `msprobe graph_visualize`": "the [page](page.md) of a comparison, which shows the model as a tree",
    "`msprobe parse`": "`probe convert` converts ACL dumps (`.bin`) to `.npy`; ATB dumps cannot be read. `probe parse` prints "
    "rows, tensors and call stacks of older dumps ([Older dumps](legacy.md)). `.pt`, `.npy` and safetensors files need no "
    "conversion.",
    "`python -m msprobe.core.monitor.anomaly_processor`": "`probe monitor-alerts`, or `probe anomaly-processor`",
    "the task `grad_probe`": "the task [`grad_probe`](gradients.md), and `probe grad compare`",
    "`msprobe config_check -c`, for two checkpoints": "the same, or [`probe checkpoint`](checkpoints.md)",
}
"""Other commands and modules of msprobe, as cells of a table, with the replacement."""
COMPARE_26 = """
`compare -tp T -gp G` writes csv tables and no advisor file. `-tensor_log` prints the causes and the summary. Without it, only the
verdict and the files are printed. `--rank` and `--step` work for all runs; in msprobe they work for static graphs of MindSpore only.
"""
"""Text on the options of msprobe 26 in ``probe compare``."""

HEAD = """# Coming from msprobe

Use the recordings, commands and configuration files of msprobe (mindstudio-probe 1.0, 8.3 and 26) with probe. probe reads the recordings
unchanged, and writes the same tables. For most commands, replace `msprobe` by `probe`. This page lists the commands, options, fields and
columns. [What becomes of msprobe's tools](coverage.md) lists every tool, option, field, file and function, and the
[Glossary](glossary.md) explains the terms.

```bash
probe compare --framework pytorch -i compare.json -o out -s -c -f -hl -dm map.yaml
probe -f pytorch compare -i compare.json -o out
```

In addition to msprobe's output, probe writes the [verdict](diagnosis.md#verdicts) as the first line on the terminal and an
[answer file](answer-file.md). If you pass the runs as two arguments, it also writes a [page](page.md) for the browser.

## In a training script

| msprobe | probe |
|---|---|
| `from msprobe.pytorch import PrecisionDebugger, seed_all` | `from probe_pytorch import PrecisionDebugger, seed_all` |
| `from msprobe.pytorch import compare` | `from probe_pytorch import compare`, with the same parameters |
| `from msprobe.pytorch import compare_distributed` | `from probe_pytorch import compare_distributed` |
| `PtdbgDispatch`, the online dispatch check | [`probe_pytorch.DispatchCheck`](dispatch-check.md), with different arguments |
| `from msprobe.mindspore import PrecisionDebugger` | `from probe_mindspore import PrecisionDebugger` |
| `from msprobe.pytorch import TrainerMon` | `from probe_check import TrainerMon`, with the same configuration and files ([Monitor a training](monitor.md)) |
| `from msprobe.mindspore import TrainerMon` | `from probe_check import TrainerMon`, in PyNative mode |
| `csv2db(CSV2DBConfig(…))`, `csv2tensorboard_by_step(…)` | `probe_check.csv2db(…)`, `probe_check.csv2tensorboard_by_step(…)` |

[Debugger](configuration.md#debugger) lists the methods of the debugger. `probe run train.py` records an unchanged script.

The [online pre-check](online.md) accepts the two `config.json` files unchanged (`is_online` of `run_ut`, `online_run_ut` of `tensor`). It
needs neither twisted nor pyOpenSSL. Use probe at both ends: its protocol differs from that of msprobe, whose messages must be unpickled.
"""

DIFFERENT = """## What differs, and why

Rows and columns are those of msprobe 8.3. Where a cell differs, the cell of msprobe is wrong or contains no information:

| msprobe | probe | reason |
|---|---|---|
| A golden value without a partner has no row. | It has a row. | An operator that is missing in the target must be visible. |
| If the shapes of a pair differ, the pair counts as unmatched, and the golden's cells are empty. | Both sides are shown, and the cells contain `shape unmatched`. | Users need the two shapes. |
| An unmatched row reports that requires_grad is inconsistent. | The row reports that there is no partner. | Nothing is known about the partner. |
| Relative errors add a small number to a golden of 0: 4503599627370496. | They are `inf`. | The formula of the guide does not contain such a number. |
| Errors of float16 are computed in float16. | All errors are computed in float64. | An error must not overflow or round in the dtype under test. |
| Statistics: `Warning` divides by the larger of the two sides. | It divides by the golden, as in the guide. | A difference of 100 % was not reported. |
| If a statistic is nan on one side, Result is empty (in 26, it is `pass`). | It is a `Warning`. | Users search for nan. |
| Relative errors of statistics are texts in xlsx: `12.5%`. | They are numbers in percent. | Texts cannot be sorted or plotted. |
| A row without a partner is `pass` (26). | It has no result. | The row was not compared. |
| Integers and scalars that differ are not reported. | `Err_message` reports them. | [1, 2, 4] and [1, 2, 5] have a cosine near 1. |
| `-f` (26: `-fm`) fails for statistics, and may pair values that have an exact partner. | Whole calls are paired in order, and identical runs pair one to one. | |
| `-da` names calls that only received a fault. | Calls are searched in the order of cause and effect over all ranks. | [Search](first-difference.md#search) |
| `nan_analyze` reports masks, and does not find nan in data and parameters. | Masks are not reported, and the origin is named. | [Differences to msprobe](nan-analyze.md#differences-to-msprobe) |
| `config_check` swaps the two sides of environment variables, and stores all variables. | It does not swap them, and stores only the documented variables. | [Differences from msprobe](config-check.md#differences-from-msprobe) |
| `run_ut` needs an NPU or a GPU. | It also runs on a CPU. | |
| If `multi_run_ut` crashes, it ends with exit code 0. | The call is named, and the exit code is 3. | [Exit codes](command-line.md#exit-codes) |
| The directory of a single process is `proc{pid}` (26). | It is `rank`, as in 8.3. | Scripts can then contain paths. |
| Training ends after the last selected step (1.0). | It continues. | |
| If the receiver cannot be reached, the training is killed (online, 1.0). | The training continues. Calls that do not fit into the buffer are dropped and counted. | [Bounds](online.md#bounds) |
| Data that is received online is unpickled. | It consists of JSON and bytes. | Unpickling can run code of an untrusted sender. |

[Edges](edges.md) shows the cells of msprobe and probe in edge cases. Recordings of probe contain one tensor file per step. To read them with
msprobe's tools, set `"store": "files"`. Tables of msprobe 26 are csv files by default. probe writes xlsx files; `--format csv` writes csv files.
"""


TASKS = {
    "free_benchmark": "the same, with some differences for [PyTorch](free-benchmark.md#differences-from-msprobe) and "
    "[MindSpore](free-benchmark.md#mindspore)",
}
"""Results for tasks that are not the same in all points."""


def page(manager: Manager) -> str:
    """Return the page."""
    return "\n".join([HEAD, *commands(manager), *fields(), *columns(), DIFFERENT])


def commands(manager: Manager) -> list[str]:
    """Return a table of the commands of each release, and one of their options."""
    lines = ["## Commands", "", "| msprobe | probe |", "|---|---|"]
    names = {name: None for release in RELEASES.values() for name in release}
    known = {spelling: name for name in manager.names("commands") for spelling in spellings(manager, name)}
    lines += [f"| `msprobe {name}` | `probe {known[name]}`, or `probe {name}` |" if known[name] != name
              else f"| `msprobe {name}` | `probe {name}` |" for name in names]  # fmt: skip
    lines += [f"| {cell} | {text} |" for cell, text in ELSEWHERE.items()]
    lines += [
        "",
        "`-f pytorch` before the command is accepted, but rarely needed, because probe detects the framework.",
        "",
    ]
    for release, given in RELEASES.items():
        lines += [f"### Options of {release}", "", "| command | msprobe | probe |", "|---|---|---|"]
        for name, texts in given.items():
            accepted = options(manager, known[name])
            for main, same in grouped(texts.split(), accepted).items():
                lines.append(f"| `{name}` | {', '.join(f'`{one}`' for one in same)} | {main} |")
        lines.append("")
    return [*lines, COMPARE_26.lstrip()]


def spellings(manager: Manager, name: str) -> list[str]:
    """Return all names of a command."""
    spec = manager.find("commands", name, CommandSpec)
    return [spelling for one in (name, *spec.aliases) for spelling in list_spellings(one)]


def options(manager: Manager, name: str) -> dict[str, str]:
    """Return the main spelling of each option of a command, by every spelling that is accepted."""
    command = add_plugin_options(name, manager.find("commands", name, CommandSpec).make(), manager)
    with click.Context(command, obj=manager, parent=click.Context(cli)) as context:
        parameters = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    return {text: f"`{one.opts[-1]}`" for one in parameters for text in getattr(one, "accepted", one.opts)}


def grouped(texts: list[str], accepted: dict[str, str]) -> dict[str, list[str]]:
    """Return the spellings of msprobe, all of which are accepted, by the option in probe."""
    spellings_of: dict[str, list[str]] = {}
    for text in texts:
        spellings_of.setdefault(accepted[text], []).append(text)
    return {
        "the same" if texts == [main.strip("`")] else f"the same, or {main}": texts
        for main, texts in spellings_of.items()
    }


def fields() -> list[str]:
    """Return tables of the fields of ``config.json``, and of its tasks."""
    own = {"store", "compile", "support_wrap_ops", "step_phases", "conditions", *PROBE_FIELDS}
    sections = set().union(*config.SECTION_FIELDS.values())
    used = sorted((config.TOP_FIELDS | sections) - config.ELSEWHERE - own - {"check_mode"})
    ignored = sorted(config.ELSEWHERE | {"check_mode"})
    lines = ["## config.json", "", "| fields | in probe |", "|---|---|"]
    lines.append(f"| {', '.join(f'`{name}`' for name in used)} | the same |")
    lines.append(
        f"| {', '.join(f'`{name}`' for name in ignored)} | accepted without effect, with a warning if they are set |"
    )
    lines.append(f"| {', '.join(f'`{name}`' for name in sorted(own))} | only in probe |")
    lines += ["", "| task | in probe |", "|---|---|"]
    tasks = (*config.TASKS, *sorted(config.find_plugin_tasks()))
    lines += [f"| `{task}` | {TASKS.get(task, 'the same')} |" for task in tasks]
    lines += [f"| `{old}` | `{new}` |" for old, new in config.TASK_SYNONYMS.items()]
    lines += [f"| `{task}` | refused: {reason} |" for task, reason in config.UNSUPPORTED_TASKS.items()]
    return [*lines, "", "[Configuration](configuration.md#config-json) describes every field.", ""]


def columns() -> list[str]:
    """Return the columns of the tables."""
    lines = ["## Columns", "", "The headers and their order are the same as in msprobe 8.3:", ""]
    for mode in Mode:
        lines += [f"- **{mode.value}**: {', '.join(column.header for column in COLUMNS[mode])}"]
    lines += [
        "",
        "In msprobe 26, the column `Accuracy Reached or Not` is called `Result`, with the values pass, warning and error.",
        "",
    ]
    return lines
