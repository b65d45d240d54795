"""Spellings of commands and options, suggestions, completion, exit codes, languages."""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from support.programs import preloaded
from support.runs.details_csv import ENGLISH, GOOD, output, row, write

from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import CommandSpec
from probe_core.terminal.exit_codes import EXIT_CODES
from probe_core.terminal.plugin_options import add_plugin_options

DOCS = Path(__file__).parents[2] / "docs"
OLDER = {
    "compare": "-i --input_path --input-path -o --output_path --output-path --framework -s --stack_mode "
    "--stack-mode -c --compare_only --compare-only -f --fuzzy_match --fuzzy-match --match --matcher -hl "
    "--highlight -dm --data_mapping --data-mapping -am --api_mapping --api-mapping -cm --cell_mapping "
    "--cell-mapping -lm --layer_mapping --layer-mapping --metric --policy --format --step --rank -j --jobs "
    "--executor --scheduler --resume --fail-on --print-plan -da --diff_analyze --diff-analyze",
    "run-ut": "-api_info --api_info_file -o --out_path -d --device -save_error_data --save_error_data -j "
    "--jit_compile -csv_path --result_csv_path -f --filter_api -config --config_path --framework --only "
    "--timeout --standard --assign --seed --lang --fail-on",
    "multi-run-ut": "-api_info --api_info_file -csv_path -n --num_splits -d -save_error_data",
    "api-precision-compare": "-npu --npu_csv_path -gpu --gpu_csv_path -o --out_path --standard --assign --lang "
    "--framework --fail-on",
    "merge-result": "-i --input_dir --input-dir -o --output_dir --output-dir -config --config --config_path "
    "--config-path --format --check-collectives --fail-on",
    "run": "-o --dump-path --dump_path -c --config --task --level --step --seed -m --module",
}
"""The spellings of version 0.1 by command."""
NAMES = {
    "run-ut": ("run_ut", "acc_check", "acc-check"),
    "multi-run-ut": ("multi_run_ut", "multi_acc_check", "multi-acc-check"),
    "api-precision-compare": ("api_precision_compare",),
    "merge-result": ("merge_result",),
}


def command(name: str) -> click.Command:
    manager = Manager()
    return add_plugin_options(name, manager.find("commands", name, CommandSpec).make(), manager)


def help_of(probe: Any, name: str) -> str:
    assert probe(name, "--help") == 0, probe.err
    return str(probe.out)


# -- spellings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OLDER)
def test_older_spellings_of_options_are_accepted(name: str) -> None:
    made = command(name)
    parser = made.make_parser(click.Context(made))
    known = {*parser._short_opt, *parser._long_opt}
    assert set(OLDER[name].split()) <= known
    owners = {text: parser._short_opt.get(text, parser._long_opt.get(text)) for text in known}
    for text, owner in owners.items():
        assert owner is owners.get(text.replace("_", "-"), owner), "a dash may be an underscore"


@pytest.mark.parametrize("name", OLDER)
def test_the_help_shows_main_spellings_and_lists_the_others(name: str, probe: Any) -> None:
    text = help_of(probe, name)
    options, _, others = text.partition("Other spellings:")
    assert "_" not in "".join(re.findall(r"(?m)^  (-\S+(?:, --\S+)?)", options))
    assert "-o, --output PATH" in options or name == "run"
    for spelling in OLDER[name].split():
        if spelling not in ("-j", "-c"):
            kebab = re.sub(r"(?<=\w)_", "-", spelling)
            shown = options if re.search(rf"(?<![\w-]){re.escape(kebab)}\b", options) else others
            assert re.search(rf"(?<![\w-]){kebab}(?![\w-])", re.sub(r"(?<=\w)_", "-", shown)), spelling


@pytest.mark.parametrize("name", NAMES)
def test_commands_have_their_older_names(name: str, probe: Any) -> None:
    main = help_of(probe, name).partition("\n")[2]
    for alias in NAMES[name]:
        assert help_of(probe, alias).partition("\n")[2] == main
    assert probe("--help") == 0
    listed = " ".join(probe.out.split())
    assert f"Also: {', '.join(sorted(NAMES[name], key=listed.index))}." in listed
    assert re.search(rf"(?m)^  {name} ", probe.out)


def test_all_spellings_make_the_same_plan(runs: Any, probe: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(runs("stat_L1_datamap"))
    plans = []
    for line in (
        "-i compare.json -o out -dm map.yaml -hl -c -da",
        "--input compare.json --output out --data-mapping map.yaml --highlight --compare-only --diff-analyze",
        "--input_path compare.json --output_path out --data_mapping map.yaml -hl --compare_only --diff_analyze",
        "--input-path compare.json --output-path out --data-mapping map.yaml -hl --compare-only -da",
    ):
        assert probe("compare", *line.split(), "--print-plan") == 0, probe.err
        plan = json.loads(probe.out)
        del plan["time_stamp"]
        plans.append(plan)
    assert plans[0]["output"] == "out" and plans[0]["mapping"] == "map.yaml"
    assert all(plan == plans[0] for plan in plans)


def test_short_options_that_mean_something_else_elsewhere_are_not_shown(
    runs: Any, probe: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(runs("stat_L1_datamap"))
    assert "-j" not in help_of(probe, "compare").split() and "  --jobs" in probe.out
    assert "-c," not in help_of(probe, "run") and "  --config" in probe.out
    assert probe("compare", "-i", "compare.json", "-j", "3", "--print-plan") == 0
    assert json.loads(probe.out)["jobs"] == 3
    assert probe("run", "-c", tmp_path / "none.json", "script.py") == 2 and "none.json" in probe.err


# -- suggestions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("comprae", "compare"), ("run_utt", "run-ut"), ("merge_results", "merge-result"), ("api", "api-precision-compare")],
)  # fmt: skip
def test_an_unknown_command_is_answered_with_the_nearest(typed: str, meant: str, probe: Any) -> None:
    assert probe(typed, "x") == 2
    assert f'There is no command called "{typed}".' in probe.err
    assert f"Did you mean {meant}?" in probe.err and "Traceback" not in probe.err


def test_a_command_that_is_like_no_other(probe: Any) -> None:
    assert probe("zzzz") == 2
    assert "Use one of these:\n    " in probe.err and "    compare\n" in probe.err
    assert "Did you mean" not in probe.err


def test_an_unknown_option_is_answered_with_main_spellings(probe: Any) -> None:
    assert probe("compare", "--outptu", "x") == 2
    assert "'--output'?" in probe.err or "--output" in probe.err
    assert "output_path" not in probe.err and "output-path" not in probe.err


# -- completion ------------------------------------------------------------------------------------


def complete(line: str, **environment: str) -> list[str]:
    """Return what bash is offered for a command line, by the protocol of its completion script."""
    words = line.split(" ")
    done = preloaded.run(
        [sys.executable, "-m", "probe_core.cli"],
        env={**os.environ, "_PROBE_COMPLETE": "bash_complete", "COMP_WORDS": line,
             "COMP_CWORD": str(len(words) - 1), **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not done.stderr
    return done.stdout.split()


def test_commands_are_completed_by_their_main_names() -> None:
    offered = complete("probe ")
    assert {"plain,compare", "plain,run-ut", "plain,merge-result", "plain,completion"} <= set(offered)
    assert not [item for item in offered if "_" in item or "acc" in item]
    assert complete("probe mer") == ["plain,merge-result"]


@pytest.mark.parametrize("name", ["compare", "merge_result", "run-ut"])
def test_options_are_completed_by_their_main_spellings(name: str) -> None:
    offered = complete(f"probe {name} --")
    assert "plain,--output" in offered and "plain,--input" in offered
    assert not [item for item in offered if "_" in item or (item.endswith("-path") and "csv" not in item)]
    assert not {"plain,-j", "plain,-api_info", "plain,--matcher"} & set(offered)


def test_options_of_plugins_and_values_are_completed() -> None:
    assert complete("probe compare --diff") == ["plain,--diff-analyze"]
    assert complete("probe compare --fail-on ") == [
        f"plain,{value}" for value in ("warning", "error", "suspect", "incomplete")
    ]
    assert complete("probe run-ut --lang ") == ["plain,zh", "plain,en"]
    assert complete("probe compare tar") == ["file,tar"], "runs are paths"


def test_completing_commands_imports_none() -> None:
    done = preloaded.run(
        [sys.executable, "-X", "importtime", "-m", "probe_core.cli"],
        env={**os.environ, "_PROBE_COMPLETE": "bash_complete", "COMP_WORDS": "probe ", "COMP_CWORD": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not names & {"torch", "numpy", "probe_pytorch.run_command", "probe_ranks.command.compare"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed_and_installed(
    shell: str, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"bash": ".local/share/bash-completion/completions/probe", "zsh": ".zfunc/_probe",
             "fish": ".config/fish/completions/probe.fish"}[shell]  # fmt: skip
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert probe("completion") == 0
    printed = probe.out
    assert f"_PROBE_COMPLETE={shell}_complete" in printed and not list(tmp_path.iterdir())
    for _ in range(2):
        assert probe("completion", "--install") == 0, probe.err
        assert (tmp_path / place).read_text() == printed and f"wrote {tmp_path / place}" in probe.out
    (tmp_path / place).write_text("mine")
    assert probe("completion", shell, "--install") == 2
    assert "probe did not write it" in probe.err and (tmp_path / place).read_text() == "mine"


@pytest.mark.parametrize("shell", ["/bin/tcsh", ""])
def test_a_shell_that_is_not_known(shell: str, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", shell)
    assert probe("completion") == 2 and "    bash\n    zsh\n    fish\n" in probe.err


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script(probe: Any, tmp_path: Path) -> None:
    assert probe("completion", "bash") == 0
    (tmp_path / "script").write_text(probe.out)
    (tmp_path / "probe").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m probe_core.cli "$@"\n')
    (tmp_path / "probe").chmod(0o755)
    code = (
        "source script 2>/dev/null; COMP_WORDS=(probe merge-result --in); COMP_CWORD=2; "
        '_probe_completion probe; echo "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = preloaded.run(["bash", "-c", code], cwd=tmp_path, env={**os.environ, "PATH": path},
                          capture_output=True, text=True)  # fmt: skip
    assert done.stdout.split() == ["--input"], done.stderr


# -- exit codes ------------------------------------------------------------------------------------


def test_exit_codes_stand_in_one_table() -> None:
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    for page in ("command-line.md", "reference.md"):
        assert "\n".join(rows) in (DOCS / page).read_text("utf-8")


# -- languages -------------------------------------------------------------------------------------


def chinese_messages() -> list[str]:
    """Return the Chinese texts of all messages in the code of runners and rules, values left as ``{}``."""
    found = []
    plugins = DOCS.parent / "plugins"
    for path in sorted([*plugins.glob("*/probe_*/precheck/*.py"), *plugins.glob("*/probe_*/standards/*.py")]):
        if path.name in AFTER_DETAILS:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Message" and len(node.args) == 2:
                text = node.args[0]
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts))
    return [text for text in found if not text.isascii()]


AFTER_DETAILS = {"verdicts.py", "ratio.py", "ulp.py", "dual_thousandth.py", "solo.py"}
"""Modules whose messages are made by api-precision-compare itself, or go to a column that it does not read."""
LATIN = re.compile(r"[\x00-\x7f×…]*")


def test_copied_messages_are_translated(probe: Any, tmp_path: Path) -> None:
    texts = chinese_messages()
    assert len(texts) >= 15
    names = [f"Torch.abs.{number}.forward.output.0" for number in range(len(texts) + 1)]
    cells = [text.replace("{}", "(2, 3)") for text in texts]
    rows = [row(name, status="error", message=cell) for name, cell in zip(names, cells)]
    skipped = row(names[-1], dtype="", status="SKIP", message=" ".join(cells))
    write(tmp_path / "npu.csv", [*rows, skipped])
    write(tmp_path / "gpu.csv", [*rows, skipped])
    command = ("api-precision-compare", "--npu", tmp_path / "npu.csv", "--gpu", tmp_path / "gpu.csv")
    for language in ("en", "zh"):
        assert probe(*command, "-o", tmp_path / language, "--lang", language) == 0, probe.err
    for path in (tmp_path / "en").iterdir():
        assert LATIN.fullmatch(path.read_text("utf-8-sig"))
    (details,) = (tmp_path / "zh").glob("*details*")
    lines = list(csv.DictReader(details.read_text("utf-8-sig").splitlines()))
    assert [line["Message"] for line in lines[:-1]] == cells, "what needs no translation stays"
    (english,) = (tmp_path / "en").glob("*details*")
    again = [row(line["API Name"], status="error", message=line["Message"])
             for line in csv.DictReader(english.read_text("utf-8-sig").splitlines())]  # fmt: skip
    write(tmp_path / "npu.csv", again, ENGLISH)
    assert probe(*command, "-o", tmp_path / "back", "--lang", "zh") == 0, probe.err
    (details,) = (tmp_path / "back").glob("*details*")
    lines = list(csv.DictReader(details.read_text("utf-8-sig").splitlines()))
    assert [line["Message"] for line in lines[:-1]] == cells


@pytest.mark.parametrize("locale", ["C", "en_GB.UTF-8", "zh_CN.UTF-8"])
def test_the_locale_changes_no_file_and_no_message(locale: str, tmp_path: Path) -> None:
    for side in ("npu", "gpu"):
        write(tmp_path / f"{side}.csv", [row(output(method), **cells) for method, cells in GOOD.items()])
    for language, chinese in (("zh", True), ("en", False)):
        command = ["api-precision-compare", "--npu", "npu.csv", "--gpu", "gpu.csv", "-o", language]
        done = preloaded.run(
            [sys.executable, "-m", "probe_core.cli", *command, "--lang", language], cwd=tmp_path,
            env={**os.environ, "LANG": locale, "LC_ALL": locale}, capture_output=True, encoding="utf-8",
        )  # fmt: skip
        assert done.returncode == 0 and done.stdout.isascii() and not done.stderr
        (details,) = (tmp_path / language).glob("*details*")
        assert (LATIN.fullmatch(details.read_text("utf-8-sig")) is None) is chinese
