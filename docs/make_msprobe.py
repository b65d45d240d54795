"""The page for users of msprobe, made from the commands, options, fields and columns: ``make_reference.py`` writes it.

The commands and options of msprobe are data in this file. Their counterparts are looked up in the code, which must
accept every spelling.
"""

from __future__ import annotations

import click
from probe_recording import config
from probe_recording.destination import PROBE_FIELDS
from probe_reporters.tables import COLUMNS

from probe_core.cli.extending import add_plugin_options
from probe_core.cli.main import cli
from probe_core.cli.spelling import list_spellings
from probe_core.model import Mode
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import CommandSpec

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
    "graph, graph_visualize": "the [page](page.md) of a comparison shows the model as a tree",
    "parse": "`probe convert` turns ACL dumps (`.bin`) into `.npy`; ATB dumps are not read. `probe parse` shows rows, "
    "tensors and call stacks of dumps of older tools ([Older dumps](legacy.md)). `.pt`, `.npy` and safetensors files need "
    "no conversion.",
    "core.monitor.anomaly_processor (a module)": "`probe monitor-alerts`, or `probe anomaly-processor`",
    "grad_probe": '[recording](gradients.md) with `"task": "grad_probe"`, and `probe grad compare`',
    "config_check -c": "of two checkpoints: the same, or [`probe checkpoint`](checkpoints.md)",
}
"""Other commands of msprobe, with what to do."""
COMPARE_26 = """
Tables of `compare -tp T -gp G` are csv, and no advisor file is written. `-tensor_log` prints the causes and the summary;
without it, only the verdict and the files are printed. `--rank` and `--step` work for all runs; msprobe has them for
static graphs of MindSpore.
"""
"""Text on the options of msprobe 26 in ``probe compare``."""

HEAD = """# Coming from msprobe

probe reads the recordings of msprobe (mindstudio-probe 1.0, 8.3 and 26) unchanged, and writes its tables. Most commands need one
change: `msprobe` becomes `probe`. This page says what becomes of commands, options, fields and columns;
[What becomes of msprobe's tools](coverage.md) lists every tool, option, field, file and function, and the [glossary](glossary.md) explains the words.

```bash
probe compare --framework pytorch -i compare.json -o out -s -c -f -hl -dm map.yaml
probe -f pytorch compare -i compare.json -o out
```

What is new stands beside what you know: the [verdict](diagnosis.md#verdicts) as the first line on the terminal, the
[answer file](answer-file.md), and, if you give the runs as two arguments, a [page](page.md) for the browser.

## In a training script

| msprobe | probe |
|---|---|
| `from msprobe.pytorch import PrecisionDebugger, seed_all` | `from probe_pytorch import PrecisionDebugger, seed_all` |
| `from msprobe.pytorch import compare` | `from probe_pytorch import compare`, with the same parameters |
| `from msprobe.pytorch import compare_distributed` | `from probe_pytorch import compare_distributed` |
| `PtdbgDispatch`, the online dispatch check | [`probe_pytorch.DispatchCheck`](dispatch-check.md), with arguments of its own |
| `from msprobe.mindspore import PrecisionDebugger` | `from probe_mindspore import PrecisionDebugger` |
| `from msprobe.pytorch import TrainerMon` | `from probe_check import TrainerMon`, with the same configuration and files ([Monitor a training](monitor.md)) |
| `from msprobe.mindspore import TrainerMon` | the same, in PyNative mode |
| `csv2db(CSV2DBConfig(…))`, `csv2tensorboard_by_step(…)` | `probe_check.csv2db(…)`, `probe_check.csv2tensorboard_by_step(…)` |

[Debugger](configuration.md#debugger) lists the methods of the debugger. A script without any change is recorded by
`probe run train.py`.

The [online pre-check](online.md) takes both `config.json` unchanged (`is_online` of `run_ut`, `online_run_ut` of `tensor`), and needs
neither twisted nor pyOpenSSL. Both ends must be probe's: the frames are others, because those of msprobe are unpickled.
"""

DIFFERENT = """## What differs, and why

The rows and columns are those of msprobe 8.3. Where a cell differs, it is because msprobe's cell was wrong or said nothing:

| msprobe | probe | why |
|---|---|---|
| A golden value without a partner is in no row. | It has a row of its own. | An operator that is missing in the target must be seen. |
| A pair of two shapes counts as unmatched, and the golden's cells are empty. | Both sides are shown; the cells say `shape unmatched`. | The shapes are what one looks for. |
| An unmatched row says that requires_grad is inconsistent. | It says that there is no partner. | Nothing is known of the partner. |
| Relative errors add a small number to a golden of 0: 4503599627370496. | They are `inf`. | The formula of the guide has no such number. |
| Errors of float16 are computed in float16. | All errors are computed in float64. | An error must not overflow or round in the dtype under test. |
| Statistics: `Warning` divides by the larger of both sides. | It divides by the golden, as the guide says. | 100 % too much went unnoticed. |
| nan on one side of a statistic leaves Result empty (26: `pass`). | It is a `Warning`. | A nan is what one looks for. |
| Relative errors of statistics are texts in xlsx: `12.5%`. | They are numbers in percent. | Texts cannot be sorted or plotted. |
| A row without a partner is `pass` (26). | It has no result. | It was not compared. |
| Integers and scalars that differ are not told. | `Err_message` says so. | [1, 2, 4] against [1, 2, 5] has a cosine near 1. |
| `-f` fails on statistics, and may pair what had its own partner (26: `-fm`). | Whole calls are paired in order; identical runs pair one to one. | |
| `-da` names calls that received a fault. | Calls are followed in the order of cause and effect over all ranks. | [Search](first-difference.md#search) |
| `nan_analyze` reports masks, and misses nan in data and parameters. | Masks are no finding, and the origin is named. | [Differences to msprobe](nan-analyze.md#differences-to-msprobe) |
| `config_check` exchanges both sides of environment variables, and stores all of them. | It does not, and stores the documented ones. | [Differences from msprobe](config-check.md#differences-from-msprobe) |
| `run_ut` needs an NPU or a GPU. | It runs on a CPU as well. | |
| A crash of `multi_run_ut` ends with exit code 0. | The call is named, and the exit code is 3. | [Exit codes](command-line.md#exit-codes) |
| The directory of a single process is `proc{pid}` (26). | It is `rank`, as in 8.3. | Paths can be written in scripts. |
| Training ends after the last selected step (1.0). | It goes on. | |
| A receiver that cannot be reached kills the training (online, 1.0). | It goes on; calls without room are dropped and counted. | [Bounds](online.md#bounds) |
| What arrives online is unpickled. | It is JSON and bytes. | Unpickling runs what a stranger sends. |

[Edges](edges.md) shows the cells of both side by side. Recordings are packed into one file a step; to read them with msprobe's
tools, set `"store": "files"`. Tables of msprobe 26 are csv by default, and probe writes xlsx: `--format csv` asks for csv.
"""


TASKS = {
    "free_benchmark": "the same for PyTorch, with [these differences](free-benchmark.md#differences-from-msprobe); "
    "forward calls only for [MindSpore](free-benchmark.md#mindspore)",
}
"""Tasks that are not the same in every way."""


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
    lines += [f"| `msprobe {name}` | {text} |" for name, text in ELSEWHERE.items()]
    lines += [
        "",
        "`-f pytorch` before the command is accepted and seldom needed: the framework is detected.",
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
    own = {"store", "compile", "support_wrap_ops", "step_phases", *PROBE_FIELDS}
    sections = set().union(*config.SECTION_FIELDS.values())
    used = sorted((config.TOP_FIELDS | sections) - config.ELSEWHERE - own - {"check_mode"})
    ignored = sorted(config.ELSEWHERE | {"check_mode"})
    lines = ["## config.json", "", "| fields | in probe |", "|---|---|"]
    lines.append(f"| {', '.join(f'`{name}`' for name in used)} | the same |")
    lines.append(f"| {', '.join(f'`{name}`' for name in ignored)} | accepted without effect, with a warning if set |")
    lines.append(f"| {', '.join(f'`{name}`' for name in sorted(own))} | probe's own |")
    lines += ["", "| task | in probe |", "|---|---|"]
    tasks = (*config.TASKS, *sorted(config.find_plugin_tasks()))
    lines += [f"| `{task}` | {TASKS.get(task, 'the same')} |" for task in tasks]
    lines += [f"| `{old}` | `{new}` |" for old, new in config.TASK_SYNONYMS.items()]
    lines += [f"| `{task}` | refused: {reason} |" for task, reason in config.UNSUPPORTED_TASKS.items()]
    return [*lines, "", "Every field: [configuration.md](configuration.md).", ""]


def columns() -> list[str]:
    """Return the columns of the tables."""
    lines = ["## Columns", "", "Headers and their order are those of msprobe 8.3:", ""]
    for mode in Mode:
        lines += [f"- **{mode.value}**: {', '.join(column.header for column in COLUMNS[mode])}"]
    lines += [
        "",
        "msprobe 26 calls `Accuracy Reached or Not` `Result`, with the values pass, warning and error.",
        "",
    ]
    return lines
