"""Write the pages that are made from the code: ``python docs/make_reference.py``.

``reference.md`` comes from the commands, columns, plugins, hooks, settings and docstrings, ``from-msprobe.md`` from
the spellings that commands accept, ``answer.schema.json`` from the answer file; ``edges.md`` from comparing the
recorded edge cases in ``tests/data``, beside msprobe's recorded result. Other installed plugins, such as
those of the tests, are left out.
"""

from __future__ import annotations

import gzip
import inspect
import json
import os
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import click
import make_coverage
import make_interface
import make_msprobe
from probe_precheck import tables as precheck
from probe_reporters import ReasonTexts
from probe_reporters.tables import COLUMNS

from probe_core.cli.extending import add_plugin_options
from probe_core.cli.main import EXIT_CODES, cli, run
from probe_core.model import Mode
from probe_core.plugins import hookspecs
from probe_core.plugins.distributions import PLUGINS_VARIABLE
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import CommandSpec, MetricSpec, PolicySpec

DOCS = Path(__file__).resolve().parent
DATA = DOCS.parent / "tests" / "data"
HEAD = "<!-- Made by docs/make_reference.py; change the code, or that file, and run it again. -->\n"
DISTRIBUTIONS = {
    "core", "matching", "precheck", "diagnosis", "pytorch", "mindspore", "metrics", "reporters", "page",
    "explain", "legacy", "watch", "check", "workflow",
}  # fmt: skip

PRECHECK = {
    "accuracy_checking_result": precheck.RESULT,
    "accuracy_checking_details": precheck.DETAILS,
    "api_precision_compare_result": precheck.COMPARE_RESULT,
    "api_precision_compare_details": precheck.COMPARE_DETAILS,
}
ACCURACY = "Accuracy Reached or Not"
MESSAGE = "Err_message"
EDGES: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {
    "tensor_L1_edge": [
        ("nan at different places", "Torch.abs.0.forward.input.0", ("Cosine", ACCURACY, MESSAGE)),
        ("nan, inf and -inf at the same places", "Torch.abs.1.forward.input.0", ("Cosine", "MaxAbsErr", ACCURACY)),
        ("all nan on both sides", "Torch.abs.2.forward.input.0", ("Cosine", "MaxAbsErr", ACCURACY)),
        ("inf in the target alone", "Torch.abs.3.forward.output.0", ("Cosine", ACCURACY, MESSAGE)),
        ("0-d", "Torch.exp.0.forward.output.0", ("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", ACCURACY, MESSAGE)),
        ("no elements on both sides", "Torch.exp.1.forward.input.0", ("Cosine", ACCURACY, MESSAGE)),
        ("no elements against two", "Torch.exp.2.forward.input.0", ("Bench Name", "Cosine", ACCURACY, MESSAGE)),
        ("other shape", "Torch.neg.0.forward.input.0", ("Bench Name", "Cosine", ACCURACY, MESSAGE)),
        ("bfloat16 against float32", "Torch.neg.1.forward.output.0", ("MaxAbsErr", ACCURACY, MESSAGE)),
        ("int64", "Torch.sum.0.forward.output.0", ("Cosine", "MaxAbsErr", ACCURACY)),
        ("int32", "Torch.add.3.forward.output.0", ("Cosine", "MaxAbsErr", ACCURACY)),
        ("uint8", "Torch.add.2.forward.output.0", ("Cosine", "MaxAbsErr", ACCURACY)),
        ("bool", "Torch.logical_not.0.forward.output.0", ("Cosine", "MaxAbsErr", "MaxRelativeErr", ACCURACY)),
        ("requires_grad differs", "Torch.sigmoid.0.forward.input.0", ("Requires_grad Consistent", MESSAGE)),
        ("transposed", "Torch.sqrt.0.forward.input.0", ("Cosine", "EucDist", ACCURACY)),
        ("strided", "Torch.sqrt.1.forward.input.0", ("Cosine", "EucDist", ACCURACY)),
        ("expanded", "Torch.sqrt.2.forward.input.0", ("Cosine", "EucDist", ACCURACY)),
        ("a list of tensors", "Torch.cat.0.forward.input.0.1", ("Cosine", "MaxAbsErr", ACCURACY)),
        ("tensors in keyword arguments", "Torch.stack.0.forward.kwargs.tensors.0", ("Bench Name", "Cosine")),
        ("a scalar that differs", "Functional.pad.0.forward.input.value", ("Cosine", ACCURACY, MESSAGE)),
        ("a scalar of another type", "Tensor.__add__.1.forward.input.1", ("Bench Name", "Bench Dtype", MESSAGE)),
        ("float64", "Functional.softmax.0.forward.output.0", ("NPU Dtype", "Cosine", ACCURACY)),
        ("all zero on both sides", "Torch.mul.0.forward.output.0", ("Cosine", "MaxRelativeErr", ACCURACY)),
        ("all zero in the golden", "Torch.mul.1.forward.output.0",
         ("Cosine", "MaxRelativeErr", "One Thousandth Err Ratio", ACCURACY, MESSAGE)),
        ("overflow to inf in the target", "Torch.mul.2.forward.output.0", ("NPU max", "Cosine", ACCURACY, MESSAGE)),
        ("complex64", "Torch.add.0.forward.output.0", ("Cosine", "MaxAbsErr", ACCURACY)),
        ("float16 whose norm overflows", "Torch.add.1.forward.output.0",
         ("Cosine", "EucDist", "MaxRelativeErr", "NPU l2norm", ACCURACY)),
        ("one element", "Torch.tanh.0.forward.output.0", ("Cosine", "MaxAbsErr", ACCURACY, MESSAGE)),
        ("null", "Tensor.__setitem__.0.forward.output.0", ("NPU Dtype", "Cosine", ACCURACY, MESSAGE)),
        ("in the target alone", "Torch.cos.0.forward.input.0",
         ("Bench Name", "Requires_grad Consistent", "Cosine", ACCURACY, MESSAGE)),
        ("in the golden alone", "Torch.sin.0.forward.input.0",
         ("NPU Name", "Requires_grad Consistent", "Cosine", ACCURACY, MESSAGE, "Data_name")),
    ],
    "stat_L1_edge": [
        ("nan on both sides", "Torch.abs.0.forward.input.0", ("Max diff", "MaxRelativeErr", "Result")),
        ("inf against a number", "Torch.abs.3.forward.input.0", ("Max diff", "MaxRelativeErr", "Result", MESSAGE)),
        ("the golden's statistic is 0", "Tensor.__add__.0.forward.output.0", ("Min diff", "MinRelativeErr", "Result")),
        ("off by 100 % of the golden", "Torch.sum.0.forward.output.0", ("MinRelativeErr", "Result", MESSAGE)),
        ("other shape", "Torch.neg.0.forward.input.0", ("Bench Name", "Max diff", "Result", MESSAGE)),
        ("bfloat16 against float32", "Torch.neg.1.forward.output.0", ("MaxRelativeErr", "Result", MESSAGE)),
        ("norms that overflowed on both sides", "Torch.add.1.forward.output.0",
         ("NPU l2norm", "L2norm diff", "NormRelativeErr", "Max diff")),
    ],
    "md5_L1_edge": [
        ("other shape, equal bytes", "Torch.neg.0.forward.output.0", ("Bench Name", "Result")),
        ("null without partner", "Tensor.__setitem__.0.forward.output.0", ("NPU MD5", "Result")),
        ("equal", "Torch.abs.1.forward.input.0", ("NPU MD5", "Result")),
    ],
}  # fmt: skip


def commands(manager: Manager) -> list[str]:
    """Return each command's help with the options that plugins add, and the exit codes."""
    lines = [
        "## Commands",
        "",
        "Spellings, completion and environment variables: [Command line](command-line.md).",
        "",
    ]
    for name in ("", *sorted(manager.names("commands"))):
        command = add_plugin_options(name, manager.find("commands", name, CommandSpec).make(), manager) if name else cli
        title = f"probe {name}".rstrip()
        context = click.Context(
            command, info_name=title, obj=manager, help_option_names=["-h", "--help"],
            terminal_width=110, max_content_width=110,
        )  # fmt: skip
        lines += [f"### {title}", "", "```text", command.get_help(context), "```", ""]
        for part, below in sorted(command.commands.items()) if name and isinstance(command, click.Group) else ():
            inner = click.Context(below, context, part, terminal_width=110, max_content_width=110)
            lines += [f"#### {title} {part}", "", "```text", below.get_help(inner), "```", ""]
    lines += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    return [*lines, *(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()), ""]


def tables() -> list[str]:
    """Return the columns of all tables, and the messages."""
    lines = ["## Columns", ""]
    for mode in Mode:
        names = ", ".join(column.header for column in COLUMNS[mode])
        lines += [f"**{mode.value}**: {names}", ""]
    lines += ["`NPU_Stack_Info` is there when call stacks are shown, and never for `debug.json`.", ""]
    lines += ["The pre-check's tables, with the headers of `--lang en`:", ""]
    for title, columns in PRECHECK.items():
        names = ", ".join(c.chinese if c.chinese == c.english else f"{c.chinese} ({c.english})" for c in columns)
        lines += [f"**{title}**: {names}", ""]
    lines += ["## Messages", "", "| code | Err_message | cell of a tensor metric |", "|---|---|---|"]
    texts = ReasonTexts.load(ours()).by_code
    for code, text in texts.items():
        if text.message and not code.startswith("mark_"):
            lines.append(f"| {code} | {text.message} | {text.cell} |")
    lines += ["", "Highlighting adds, each on a line of its own:", ""]
    lines += [f"- {text.message}" for code, text in texts.items() if code.startswith("mark_")]
    return [*lines, ""]


def contributions(manager: Manager) -> list[str]:
    """Return the metrics, policies and other contributions of probe's own plugins."""
    lines = ["## Metrics", "", "| name | columns | needs | summary |", "|---|---|---|---|"]
    for name in manager.names("metrics"):
        spec = manager.find("metrics", name, MetricSpec)
        columns = ", ".join(spec.columns)
        lines.append(f"| {name} | {columns} | {spec.needs.value} | {spec.summary} |")
    lines += ["", "## Policies", "", "| name | standard | reads | summary |", "|---|---|---|---|"]
    for name in manager.names("policies"):
        spec_ = manager.find("policies", name, PolicySpec)
        lines.append(f"| {name} | {spec_.standard} | {', '.join(spec_.metrics)} | {spec_.summary} |")
    lines += [
        "",
        "## Readers, matchers, reporters, the parts of the pre-check",
        "",
        "| kind | name | summary |",
        "|---|---|---|",
    ]
    for kind in ("readers", "matchers", "reporters", "runners", "status_rules", "standards", "references"):
        for item in manager.contributions(kind):
            lines.append(f"| {kind[:-1].replace('_', ' ')} | {item.spec.name} | {item.spec.summary} |")
    return [*lines, ""]


def hooks(manager: Manager) -> list[str]:
    """Return the plugin manual: the hooks of the core, then those that kits declare."""
    lines = []
    for module in manager.hookspecs:
        kit = module.__name__.partition(".")[0]
        title = "Hooks" if module is hookspecs else f"Hooks of {kit.replace('_', '-')}"
        lines += [f"## {title}", "", inspect.cleandoc(module.__doc__ or "").replace("::\n", ":\n"), ""]
        for name in sorted(name for name in dir(module) if name.startswith("probe_")):
            function = getattr(module, name)
            manual = inspect.cleandoc(function.__doc__)
            text, _, example = manual.partition("Example::")
            parameters = ", ".join(inspect.signature(function).parameters)
            lines += [
                f"### {name}({parameters})",
                "",
                text.strip(),
                "",
                "```python",
                inspect.cleandoc(example),
                "```",
                "",
            ]
    return lines


def edges() -> str:
    """Return the page of edges: msprobe's recorded cells beside those of probe."""
    with gzip.open(DATA / "expected-8.3.3.jsonl.gz", "rt", encoding="utf-8") as file:
        results = [json.loads(line) for line in file]
    recorded = {item["case"]: item for item in results if item["mode"] == "default"}
    lines = [
        HEAD,
        "# Edges\n",
        "Edge cases as msprobe (mindstudio-probe 8.3.3) and probe show them. The runs were recorded with",
        "msprobe and are part of the tests; `tests/data/differences-8.3.3.yaml` gives the reason for each",
        "difference. A dash: there is no such row.\n",
    ]
    with tempfile.TemporaryDirectory() as directory:
        zipfile.ZipFile(DATA / "runs-8.3.3.zip").extractall(directory)
        for case, wanted in EDGES.items():
            base = Path(directory) / case / "v8.3.3"
            out = Path(directory) / f"out-{case}"
            arguments = ["compare", str(base / "npu_dump"), str(base / "bench_dump"), "-c", "-o", str(out)]
            if run([*arguments, "--format", "jsonl"]):
                raise SystemExit(f"{case} cannot be compared")
            rows = [json.loads(line) for line in next(out.glob("*.jsonl")).read_text("utf-8").splitlines()]
            msprobe = [dict(zip(recorded[case]["columns"], row)) for row in recorded[case]["rows"]]
            lines += [f"## {case}\n", "| edge | row | msprobe | probe |", "|---|---|---|---|"]
            for edge, name, columns in wanted:
                cells = (show(find(msprobe, name), columns), show(find(rows, name), columns))
                lines.append(f"| {edge} | {name} | {cells[0]} | {cells[1]} |")
            lines.append("")
    return "\n".join(lines)


def find(rows: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """Return the row of a target name, or of a golden name without a partner."""
    return next((row for row in rows if name in (row["NPU Name"], row["Bench Name"])), None)


def show(row: dict[str, Any] | None, columns: tuple[str, ...]) -> str:
    """Return the cells of a row as one cell of a page."""
    if row is None:
        return "—"
    texts = []
    for column in columns:
        value = row[column]
        text = f"{value:.6g}" if isinstance(value, float) else str("" if value is None else value).strip()
        texts.append(f"{column}: {text}" if text else f"{column}: (empty)")
    return "<br>".join(texts)


def reference() -> str:
    """Return the page of commands, columns, plugins, the interface from Python, settings and hooks."""
    manager = ours()
    parts = [
        commands(manager), tables(), contributions(manager), make_interface.interface(),
        make_interface.configuration(), hooks(manager),
    ]  # fmt: skip
    body = "\n".join(line for part in parts for line in part)
    return f"{HEAD}\n# Reference\n\nFile names: [File names](tables.md#file-names).\n\n{body}"


def from_msprobe() -> str:
    """Return the page for users of msprobe."""
    return f"{HEAD}\n{make_msprobe.page(ours())}"


def coverage() -> str:
    """Return the page on what becomes of each name in msprobe's documents."""
    return f"{HEAD}\n{make_coverage.page(ours())}"


@cache
def ours() -> Manager:
    """Return the manager of probe's own plugins."""
    os.environ[PLUGINS_VARIABLE] = ",".join(sorted(DISTRIBUTIONS))
    manager = Manager()
    for kind in manager.kinds:
        manager.contributions(kind)
    return manager


PAGES = {
    "reference.md": reference,
    "edges.md": edges,
    "from-msprobe.md": from_msprobe,
    "coverage.md": coverage,
    "answer.schema.json": make_interface.answer_schema,
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (DOCS / name).write_text(make().rstrip() + "\n", "utf-8")
