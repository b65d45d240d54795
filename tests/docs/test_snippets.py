"""Snippets of the pages that no test of their own page runs: each is used by what it is for."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from test_pages import PAGES, ROOT, blocks

import probe_core

DOCS = ROOT / "docs"
HERE = "test_snippets.py"
RUN_BY = {
    "against.md json": "test_against_page.py",
    "answer-file.md python": HERE,
    "checkpoints.md json": "test_checkpoints_page.py",
    "checkpoints.md python": "test_checkpoints_page.py",
    "checkpoints.md yaml": "test_checkpoints_page.py",
    "comparing.md python": "test_comparing_page.py",
    "dispatch-check.md python": "test_dispatch_check_page.py",
    "dispatch-check.md yaml": "test_dispatch_check_page.py",
    "configuration.md json": "test_configuration_page.py",
    "configuration.md python": "test_configuration_page.py",
    "explanation.md python": "test_commands.py",
    "first-difference.md json": HERE,
    "formats.md json": HERE,
    "gradients.md json": "test_gradients_page.py",
    "gradients.md python": "test_gradients_page.py",
    "free-benchmark.md json": "test_free_benchmark_page.py",
    "free-benchmark.md python": "test_free_benchmark_page.py",
    "how-to.md json": "test_how_to_page.py",
    "pytest.md python": "test_pytest_page.py",
    "how-to.md python": "test_how_to_page.py",
    "merging.md python": "plugins/reporters/test_merge_command.py",
    "merging.md yaml": "plugins/reporters/test_merge_command.py",
    "config-check.md python": "test_config_check_page.py",
    "detector-plugin.md python": "test_detector_page.py",
    "detector-plugin.md toml": "test_detector_page.py",
    "metric-plugin.md python": "test_pages.py",
    "metric-plugin.md toml": "test_pages.py",
    "launchers.md json": "test_launchers_page.py",
    "launchers.md python": "test_launchers_page.py",
    "legacy.md python": "test_legacy_page.py",
    "mindspore.md python": HERE,
    "monitor.md json": "test_monitor_page.py",
    "monitor.md python": "test_monitor_page.py",
    "online.md json": "test_online_page.py",
    "pairing.md yaml": HERE,
    "plugins.md json": "test_plugins_page.py",
    "plugins.md python": "test_plugins_page.py",
    "plugins.md toml": "test_plugins_page.py",
    "precheck.md yaml": HERE,
    "python.md python": "test_python_page.py",
    "README.md python": "test_recording_page.py",
    "recorder-plugin.md python": "test_pages.py",
    "recorder-plugin.md toml": "test_pages.py",
    "recording.md python": "test_recording_page.py",
    "recording.md yaml": "test_recording_page.py",
    "reference.md python": HERE,
    "runner-plugin.md json": "test_pages.py",
    "runner-plugin.md python": "test_pages.py",
    "runner-plugin.md toml": "test_pages.py",
    "runner-plugin.md yaml": "test_pages.py",
    "tables.md python": "test_commands.py",
    "tutorial.md python": "test_tutorial_page.py",
    "watch.md python": "test_keep_last_page.py",
}
"""Languages of the snippets of each page, with the test that runs them."""


def test_every_snippet_has_its_test() -> None:
    found = {
        f"{page.name} {language}"
        for page in PAGES
        for language in re.findall(r"^```(python|json|yaml|toml)$", page.read_text("utf-8"), re.MULTILINE)
    }
    assert found == RUN_BY.keys()


def test_the_files_of_the_page_on_formats_are_a_run(tmp_path: Path, probe: Any) -> None:
    dump, stack = blocks(DOCS / "formats.md", "json")
    run = tmp_path / "run"
    run.mkdir()
    (run / "dump.json").write_text(dump)
    (run / "stack.json").write_text(stack)
    out = tmp_path / "out"
    assert probe("compare", run, run, "-o", out, "--format", "csv") == 0, probe.err
    assert probe.out.startswith("AGREE")
    table = next(out.glob("*.csv")).read_text("utf-8-sig")
    assert "Functional.relu.0.forward.input.inplace" in table and "File model.py, line 12" in table


def test_the_files_of_first_differences_have_the_fields_of_their_page(tmp_path: Path, runs: Any, probe: Any) -> None:
    base = runs("tensor_L1_dist2")
    steps = [next((base / side).glob("step*")) for side in ("npu_dump", "bench_dump")]
    assert probe("compare", *steps, "-o", tmp_path, "-da") == 0, probe.err
    op, node = (json.loads(text) for text in blocks(DOCS / "first-difference.md", "json"))
    written = json.loads(next(tmp_path.glob("compare_result_rank1_*.json")).read_text("utf-8"))
    name = next(iter(op))
    assert op[name].keys() == written[name].keys() | {"module"}  # this run has no modules
    shown, items = op[name]["op_items"][0], written[name]["op_items"]
    item = next(one for one in items if one["NPU Name"] == shown["NPU Name"])
    assert shown.keys() <= item.keys() and shown["difference"].keys() == item["difference"].keys()
    found = json.loads(next(tmp_path.glob("diff_analyze_*.json")).read_text("utf-8"))
    assert node["rank_1"][0].keys() == found["rank_1"][0].keys() | {"module"}
    assert node["rank_1"][0]["op_name"] == found["rank_1"][0]["op_name"]


def run_of(directory: Path, rows: list[str]) -> Path:
    """A run that holds a tensor for each of these rows."""
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "requires_grad": False}
    leaf |= dict.fromkeys(("Max", "Min", "Mean", "Norm"), 1.0)
    data: dict[str, Any] = {}
    for row in rows:
        key, side = re.fullmatch(r"(.*)\.(input|output)\.0", row).groups()  # type: ignore[union-attr]
        data[key] = {"input_args" if side == "input" else side: [leaf]}
    directory.mkdir()
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (directory / "dump.json").write_text(json.dumps({**head, "data": data}))
    return directory


def test_the_mapping_files_of_the_page_on_pairing_are_understood(tmp_path: Path, room: Path) -> None:
    rows, *others = blocks(DOCS / "pairing.md", "yaml")
    pairs = yaml.safe_load(rows)
    sides = run_of(tmp_path / "target", [*pairs]), run_of(tmp_path / "golden", [*pairs.values()])
    paired = {row["NPU Name"]: row["Bench Name"] for row in probe_core.compare(*sides, mapping=pairs).rows()}
    assert paired == pairs
    options = ("cell_mapping", "layer_mapping", "api_mapping")
    for option, text in zip(options, others, strict=True):
        file = tmp_path / f"{option}.yaml"
        file.write_text(text)
        comparison = probe_core.compare(room / "ms_run", room / "pt_run", **{option: file})
        assert comparison.counts.matched, option


def test_the_lists_of_the_page_on_the_precheck_are_taken(tmp_path: Path) -> None:
    from probe_precheck.assignment import Assignment

    from probe_core.plugins.manager import Manager

    (text,) = blocks(DOCS / "precheck.md", "yaml")
    (tmp_path / "assign.yaml").write_text(text)
    Assignment(Manager(), "guide", tmp_path / "assign.yaml")
    assert yaml.safe_load(text).keys() == {"ulp", "absolute_threshold"}
    (tmp_path / "assign.yaml").write_text(text.replace("ulp", "ulps"))
    with pytest.raises(probe_core.UserError, match="ulps"):
        Assignment(Manager(), "guide", tmp_path / "assign.yaml")


def test_the_function_of_the_page_on_the_verdict_reads_it(tmp_path: Path) -> None:
    (code,) = blocks(DOCS / "answer-file.md", "python")
    names: dict[str, Any] = {}
    exec(code, names)
    (tmp_path / "answer_20260101000000.json").write_text('{"verdict": "DIVERGED"}')
    (tmp_path / "answer_20260102000000.json").write_text('{"verdict": "AGREE"}')
    assert names["verdict"](tmp_path) == "AGREE"


def test_the_script_for_mindspore_is_python() -> None:
    """It is run where MindSpore is; tests/plugins/mindspore/live records with the same calls."""
    (code,) = blocks(DOCS / "mindspore.md", "python")
    compile(code, "mindspore.md", "exec")


def test_the_examples_of_the_hooks_return_what_the_hooks_ask_for() -> None:
    import probe_diagnosis.specs
    import probe_matching.api
    import probe_precheck.specs
    import probe_ranks.specs
    import probe_recording.specs
    import probe_reporters.api

    from probe_core.model.rows import Advice
    from probe_core.plugins import protocols, specs

    names: dict[str, Any] = {
        "Text": probe_reporters.api.Text,
        "HighlightSpec": probe_reporters.api.HighlightSpec,
        "Advice": Advice,
        "NameRule": probe_matching.api.NameRule,
    }
    for module in (
        specs,
        protocols,
        probe_precheck.specs,
        probe_ranks.specs,
        probe_diagnosis.specs,
        probe_recording.specs,
        probe_matching.api,
    ):
        names |= {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    given = {"report": SimpleNamespace(counts=SimpleNamespace(rows=1)), "target": "t", "golden": "g"}
    page = (DOCS / "reference.md").read_text("utf-8")
    examples = re.findall(r"^### (probe_\w+)\(.*?```python\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    assert len(examples) > 20
    for name, code in examples:
        scope = {**names, **given}
        exec(f"def example():\n{textwrap.indent(code, '    ')}", scope)
        returned = scope["example"]()
        if isinstance(returned, list):
            kinds = {type(one).__name__ for one in returned}
            assert all(kind.endswith(("Spec", "Rule")) for kind in kinds), name


def test_answers_fit_their_schema(runs: Any, probe: Any, tmp_path: Path) -> None:
    import jsonschema

    schema = json.loads((DOCS / "answer.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    base = runs("tensor_L1_dist2")
    sides = [next((base / side).glob("step*")) for side in ("npu_dump", "bench_dump")]
    assert probe("compare", *sides, "-o", tmp_path, "--format", "csv") == 0, probe.err
    answer = json.loads(next(tmp_path.glob("answer_*.json")).read_text("utf-8"))
    assert answer["causes"]
    validator.validate(answer)
    answer["steps"][0]["ranks"][0] = {"rank": 0, "file": "dump.json", "verdict": None, "error": "…"}
    validator.validate(answer)
    for wrong in ({**answer, "verdict": "MAYBE"}, {**answer, "causes": [{"op": "…"}]}):
        assert not validator.is_valid(wrong)
