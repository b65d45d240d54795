"""Parts of the reference that come from source text: the Python interface, the settings, the answer's schema.

``make_reference.py`` writes them.
"""

from __future__ import annotations

import ast
import json
import re
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from page_links import link_page
from probe_diagnosis.answer.verdict.answer_file import SCHEMA, write_answer
from probe_diagnosis.difference.reasons import CauseKind
from probe_recording.settings import config
from probe_recording.settings.destination import FULL_QUEUE_POLICIES, Destination
from probe_recording.settings.diff_check_settings import DiffCheck

from probe_core.model.answers import Answer, Condition, Coverage, Finding, Note, NoteKind, Outcome
from probe_core.model.plan import Plan
from probe_core.model.rows import Reason
from probe_core.store.layout import RunPair

ROOT = Path(__file__).resolve().parents[1]
CONFIG = "plugins/recording/probe_recording/settings/config.py"
DEBUGGER = "plugins/recording/probe_recording/debugger.py"
WATCH = "plugins/pytorch/probe_pytorch/keeping/watch.py"
BASE_WATCH = "plugins/recording/probe_recording/keeping/watch.py"
INTERFACE = (
    ("probe_core", "probe_core/library.py", "compare"),
    ("probe_core", "probe_core/library.py", "Comparison"),
    ("probe_core", "probe_core/errors.py", "UserError"),
    ("probe_core.model.answers", "probe_core/model/answers.py", "Answer"),
    ("probe_core.model.answers", "probe_core/model/answers.py", "Finding"),
    ("probe_core.model.answers", "probe_core/model/answers.py", "Coverage"),
    ("probe_pytorch", DEBUGGER, "Debugger"),
    ("probe_pytorch", "plugins/pytorch/probe_pytorch/recorded_block.py", "record"),
    ("probe_mindspore", "plugins/mindspore/probe_mindspore/recorded_block.py", "record"),
    (
        "probe_pytorch.integrations.transformers",
        "plugins/pytorch/probe_pytorch/integrations/transformers.py",
        "ProbeCallback",
    ),
    (
        "probe_pytorch.integrations.lightning",
        "plugins/pytorch/probe_pytorch/integrations/lightning.py",
        "ProbeCallback",
    ),
    ("probe_pytorch", WATCH, "watch"),
    ("probe_pytorch", BASE_WATCH, "Watch"),
    ("probe_mindspore", "plugins/mindspore/probe_mindspore/keeping/watch.py", "watch"),
    ("probe_pytorch", "plugins/pytorch/probe_pytorch/dispatch_check/check.py", "DispatchCheck"),
    ("probe_pytorch", "plugins/pytorch/probe_pytorch/seeds.py", "seed_all"),
    ("probe_pytorch", "plugins/pytorch/probe_pytorch/compare.py", "compare"),
    ("probe_pytorch", "plugins/pytorch/probe_pytorch/compare.py", "compare_distributed"),
)
"""The public names: the module to import them from, the file that defines them, the name in it."""
PUBLIC = {
    "Debugger": ("plugins/pytorch/probe_pytorch/debugger.py", "PrecisionDebugger"),
    "Watch": (WATCH, "Watch"),
}
"""Base classes, each with the file and the name of its public subclass, which has the docstring."""
FIELDS = {
    "ranks": "rank", "steps": "step", "names": "list", "tensor_names": "tensor_list", "directions": "data_mode",
    "sides": "data_mode", "parameter_gradients": "data_mode", "summary": "summary_mode",
    "slices": "slice", "request": "request_id", "asynchronous": "async_dump", "enabled": "dump_enable", "dataloader": "enable_dataloader",
    "deterministic": "is_deterministic", "overflow_count": "overflow_nums", "wrap_ops": "support_wrap_ops",
    "operator_namespaces": "custom_op_namespaces", "wrapped_functions": "custom_wrap_ops",
}  # fmt: skip
"""Attributes of ``Config`` whose field in ``config.json`` has another name."""
PLACE = "plugins/recording/probe_recording/settings/destination.py"
DIFF_CHECK = "plugins/recording/probe_recording/settings/diff_check_settings.py"
DIFF_CHECK_NAMES = {"golden": "bench_path", "call_count": "diff_nums"}
"""The fields by the attributes of ``DiffCheck``."""
SENDING = {
    "host": "host", "port": "port", "tls": "tls_path", "shared": "nfs_path", "memory": "online_memory",
    "disk": "online_disk", "policy": "online_policy", "wait": "online_wait", "drain": "online_drain",
}  # fmt: skip
"""Attributes of ``Destination``, which the attribute ``online`` of ``Config`` holds, and their fields."""
VALUES = {
    "task": config.TASKS, "level": config.LEVELS, "summary_mode": config.SUMMARIES,
    "data_mode": ("all", *config.DATA_MODES), "risk_level": config.RISK_LEVELS, "store": config.STORE_KINDS,
    "compile": config.COMPILE_MODES, "precision": config.PRECISIONS,
}  # fmt: skip
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):\n((?: {4}.*\n?|\n)+)", re.MULTILINE)


def interface() -> list[str]:
    """Return the functions and classes for programs, with their signatures and docstrings."""
    lines = ["## Python", "", "[From Python](python.md) and [Recording PyTorch](recording.md) show examples.", ""]
    for module, file, name in INTERFACE:
        node = defined(file, name)
        public = defined(*PUBLIC[name]) if name in PUBLIC else node
        shown = signature(public) or signature(node)
        lines += [f"### {module}.{public.name}", "", f"`{public.name}{shown}`", ""]
        lines += [*markdown(ast.get_docstring(public) or ""), ""]
        methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]
        if isinstance(node, ast.ClassDef) and methods:
            lines += ["Methods:", ""]
            for method in methods:
                first, *rest = markdown(ast.get_docstring(method) or "")
                lines.append(" ".join([f"- `{method.name}{signature(method)}`: {first}", *plain(rest)]))
                lines += [f"    {line}" for line in rest if line.startswith("- ")]
        lines.append("")
    return lines


def plain(lines: list[str]) -> list[str]:
    """Return the lines of a docstring that are neither a heading nor an item of its sections."""
    return [line for line in lines if line and not line.startswith("- ") and not line.endswith(":")]


def defined(file: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    """Return the definition of a function or class in a file."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    (node,) = (one for one in tree.body if getattr(one, "name", "") == name)
    assert isinstance(node, (ast.FunctionDef, ast.ClassDef))
    return node


def signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return the parameters as they are written in a call, without ``self`` and annotations."""
    if isinstance(node, ast.ClassDef):
        found = [one for one in node.body if getattr(one, "name", "") == "__init__"]
        return signature(found[0]) if found and isinstance(found[0], ast.FunctionDef) else ""
    if any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list):
        return ""
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    text = ast.unparse(node.args).removeprefix("self, ").removeprefix("cls, ")
    return f"({'' if text in ('self', 'cls') else text})"


def markdown(docstring: str) -> list[str]:
    """Return a docstring as lines of a page, the sections of its parameters as lists."""
    text = docstring.replace("``", "`") + "\n"
    text = re.sub(r"\bdocs/([\w-]+\.md(?:#[\w-]+)?)", lambda match: link_page(match[1]), text)
    plain = SECTION.sub("", text).strip()
    lines = [line for part in plain.split("\n\n") for line in paragraph(part)]
    for title, body in SECTION.findall(text):
        items = re.findall(r"^ {4}(\S.*(?:\n {8}.*)*)", body, re.MULTILINE)
        joined = [" ".join(item.split()) for item in items]
        if title in ("Returns", "Yields"):
            lines += ["", f"{title}: {' '.join(joined)}"]
            continue
        lines += ["", f"{title}:", ""] if title != "Raises" else [""]
        what = "raises " if title == "Raises" else ""
        lines += [re.sub(r"^([\w, *]+):", rf"- {what}`\1`:", item).replace("`**", "`") for item in joined]
    return lines


def paragraph(text: str) -> list[str]:
    """Return a paragraph of a docstring as one line; an indented block as code."""
    if text.startswith("    "):
        return ["", "```python", *textwrap.dedent(text).splitlines(), "```", ""]
    return [joined] if (joined := " ".join(text.split()).removesuffix("::")) else []


def configuration() -> list[str]:
    """Return the fields of ``config.json``: their defaults, values and meanings, and those without effect."""
    lines = [
        "## Configuration",
        "",
        "[Configuration](configuration.md) describes the fields of `config.json` and their rules.",
        "",
        "| field | default | values | meaning |",
        "|---|---|---|---|",
    ]
    settings = config.parse({"dump_path": "run"})
    told = set()
    for name, meaning in attributes(ast.get_docstring(defined(CONFIG, "Config")) or ""):
        field = FIELDS.get(name, name)
        if name == "online":
            lines.append("| `online_run_ut` | false | | True to send forward calls to a receiver. |")
            for part, words in attributes(ast.get_docstring(defined(PLACE, "Destination")) or ""):
                if part in SENDING:
                    default = shown(getattr(Destination(), part)) if part != "port" else "none"
                    values = ", ".join(FULL_QUEUE_POLICIES) if part == "policy" else ""
                    lines.append(f"| `{SENDING[part]}` | {default} | {values} | {words} |")
            told |= {"online_run_ut", *SENDING.values()}
        elif name == "diff_check":
            for part, words in attributes(ast.get_docstring(defined(DIFF_CHECK, "DiffCheck")) or ""):
                if part in DIFF_CHECK_NAMES:
                    default = shown(getattr(DiffCheck(Path()), part)) if part != "golden" else "none"
                    lines.append(f"| `{DIFF_CHECK_NAMES[part]}` | {default} | | {words} |")
            told |= set(DIFF_CHECK_NAMES.values())
        elif name not in ("path", "shown_path", "sides", "parameter_gradients", "settings", "repeated"):
            default = "required" if name == "dump_path" else shown(getattr(settings, name))
            if field == "data_mode":  # one field for three attributes
                default, meaning = "all", "The phases and sides of calls that are recorded."
            values = "" if field in told else ", ".join(VALUES.get(field, ()))
            lines.append(f"| `{field}` | {default} | {values} | {meaning} |")
            told.add(field)
    sections = {name: fields - config.ELSEWHERE for name, fields in config.SECTION_FIELDS.items()}
    assert told == (config.TOP_FIELDS | set().union(*sections.values())) - {"check_mode"}, told
    lines += [
        "",
        "The section with the name of the task has these fields:",
        "",
        "| section | fields |",
        "|---|---|",
    ]
    lines += [f"| `{section}` | {listed(fields)} |" for section, fields in sections.items()]
    lines += ["", f"These fields are accepted without effect: {listed(config.ELSEWHERE | {'check_mode'})}.", ""]
    return lines


def attributes(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield the attributes of a class with their meanings."""
    body = dict(SECTION.findall(docstring + "\n"))["Attributes"]
    for item in re.findall(r"^ {4}(\S.*(?:\n {8}.*)*)", body, re.MULTILINE):
        name, _, meaning = " ".join(item.split()).partition(": ")
        meaning = re.sub(r",? ?[Oo]ne of ``(TASKS|LEVELS|RISK_LEVELS)``", "", meaning).replace("``", "`")
        yield name, meaning


def shown(value: Any) -> str:
    """Return the default of a setting as a cell of a table."""
    if value is None or value == "":
        return "none"
    if isinstance(value, (set, frozenset, tuple)):
        return ", ".join(sorted(map(str, value))) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def listed(names: Any) -> str:
    """Return names in order, each as code."""
    return ", ".join(f"`{name}`" for name in sorted(names))


def answer_schema() -> str:
    """Return the JSON schema of the answer file: its shape as the code writes it, its texts from the page.

    Raises:
        LookupError: docs/answer-file.md has no line for a field.
    """
    told = meanings()
    part = {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean", "null"]}}
    names_of_calls = {**part, "additionalProperties": {"type": "string"}}
    loose = {
        ("coverage", "not_compared"): {**part, "additionalProperties": {"type": "integer"}},
        ("baseline",): {"type": ["object", "null"]},
        ("reference",): {"type": ["object", "null"]},
    }
    for list_of_causes in ("causes", "withdrawn"):
        loose |= {(list_of_causes, "evidence"): part, (list_of_causes, "producers"): names_of_calls}
    choices: dict[tuple[str, ...], list[str]] = {
        ("verdict",): [one.value for one in Outcome],
        ("causes", "kind"): kinds(),
        ("withdrawn", "kind"): kinds(),
        ("remarks", "kind"): [one.value for one in NoteKind],
    }

    def shape(value: Any, path: tuple[str, ...]) -> dict[str, Any]:
        """Return the schema of a value that the code wrote."""
        names = tuple(name for name in path if name not in ("steps", "ranks"))
        if names in choices and isinstance(value, str):
            return {"enum": choices[names]}
        if names in loose:
            return loose[names]
        if isinstance(value, list):
            return {"type": "array", "items": shape(value[0], path)}
        if isinstance(value, dict):
            return fields(value, path)
        return {"type": {str: "string", int: "integer"}[type(value)]}

    def fields(value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        """Return the schema of an object."""
        properties = {}
        for name, item in value.items():
            text = told.get(name) or told["ranks[]" if path[-1:] == ("ranks",) else path[-1]]
            properties[name] = {"description": text, **shape(item, (*path, name))}
        required = sorted(value) if path[-1:] != ("ranks",) else ["file", "rank", "verdict"]
        return {"type": "object", "properties": properties, "required": required}

    schema = fields(filled(), ())
    rank = schema["properties"]["steps"]["items"]["properties"]["ranks"]["items"]["properties"]
    rank["verdict"] = {"enum": [*choices["verdict",], None], "description": told["ranks[]"]}
    rank["error"] = {"type": "string", "description": "the reason why the rank could not be compared"}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Answer file of probe, schema {SCHEMA}",
    }
    return json.dumps({**head, **schema}, indent=1, ensure_ascii=False)


def kinds() -> list[str]:
    """Return the kinds of causes as docs/answer-file.md lists them; all that the search knows are among them."""
    page = (ROOT / "docs" / "answer-file.md").read_text("utf-8")
    (cell,) = re.findall(r"^\| `kind` \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE)
    found = re.findall(r"`(\w+)`", cell)
    missing = {one.value.replace(" ", "_") for one in CauseKind} - {*found}
    assert not missing, f"docs/answer-file.md does not list these kinds: {missing}"
    return found


def meanings() -> dict[str, str]:
    """Return the meaning of each field of the answer file, as docs/answer-file.md states it."""
    section = (ROOT / "docs" / "answer-file.md").read_text("utf-8")
    found: dict[str, str] = {"step": "directory of the step", "file": "the record file of the target"}
    for names, meaning in re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", section, re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", meaning).replace("`", "")
        for name in re.findall(r"`([^`]+)`", names):
            found.setdefault(name, text)
    return found


def filled() -> dict[str, Any]:
    """Return the content of an answer file in which every field holds something."""
    cause = Finding("op", "row", Reason("argument", "…"), {"a": 1}, "1", ("module",), "where", "step0", 0,
                    ("later",), 1, ("same",))  # fmt: skip
    notes = (Note(NoteKind.NO_EFFECT, "…"),)
    answer = Answer(
        Outcome.DIVERGED,
        "…",
        (cause,),
        Coverage(1, 1, {"empty": 1}),
        ("…",),
        ("…",),
        notes,
        {"path": "…"},
        withdrawn=(cause,),
        conditions=(Condition("random_state", "torch", "1", "2", "…"),),
        unknown_conditions=("golden",),
    )
    with tempfile.TemporaryDirectory() as directory:
        plan = Plan(Path("target"), Path("golden"), Path(directory), "20260101000000")
        pair = RunPair(Path("target/dump.json"), Path("golden/dump.json"))
        path = write_answer(plan, answer, {"step0": [(pair, answer)]})
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content
