"""The page on each tool, option, field, file and function of msprobe, which ``make_reference.py`` writes.

``tests/data/msprobe-surface.yaml`` contains the names. Each name is looked up in the code, which has it, refuses it with a
reason, or has a replacement. ``coverage.yaml`` states where functions and files are found, and what differs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import yaml
from make_msprobe import options, spellings
from page_links import link_page
from probe_recording.settings import config
from probe_recording.settings.slices import SLICE_FIELDS

from probe_core.cli.main import cli, load_unsupported_commands
from probe_core.errors import UserError
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import CommandSpec

DOCS = Path(__file__).parent
SURFACE = DOCS.parent / "tests" / "data" / "msprobe-surface.yaml"
ANSWERS: dict[str, Any] = yaml.safe_load((DOCS / "coverage.yaml").read_text("utf-8"))

HEAD = """# What becomes of msprobe's tools

Look up whether a tool, option, field, file or function of msprobe, ptdbg_ascend or torch_npu.hooks works in probe. The tables contain all
names in the documents of these tools. The column *result* has one of three values:

- *works*: it works unchanged.
- *works differently*: the details describe the difference.
- *refused*: probe does not have it. The details state the reason and the replacement.

[Coming from msprobe](from-msprobe.md) is a shorter page on the same topic.
"""


class State(Enum):
    """Result of looking up a name of msprobe."""

    WORKS = "works"
    DIFFERS = "works differently"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Entry:
    """A name of msprobe's documents.

    Attributes:
        document: The document that names it.
        kind: The kind of thing, such as ``option``.
        of: What it belongs to, such as a command; empty for nothing.
        name: The name, of a function with its parameters.
    """

    document: str
    kind: str
    of: str
    name: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Result for an entry, with a reason unless the entry works."""

    state: State
    why: str = ""


def entries() -> Iterator[Entry]:
    """Yield the entries, in the order of the documents."""
    for document, groups in yaml.safe_load(SURFACE.read_text("utf-8")).items():
        for group in groups:
            for name in group["names"]:
                yield Entry(document, group["kind"], group.get("of", ""), name)


def answer_of(entry: Entry, manager: Manager) -> Answer:
    """Return the result for an entry.

    Raises:
        LookupError: The code does not have it, and nothing says why.
    """
    for state in (State.DIFFERS, State.REFUSED):
        texts = ANSWERS[state.name.lower()].get(entry.of or entry.kind, {})
        if (why := texts.get(entry.name) or texts.get("*")) is not None:
            return Answer(state, why)
    return LOOKUPS[entry.kind](entry, manager)


def command(entry: Entry, manager: Manager) -> Answer:
    """Look up a command."""
    if (error := load_unsupported_commands().get(entry.name)) is not None:
        return Answer(State.REFUSED, reason_of(error))
    main_name(entry.name, manager)
    return Answer(State.WORKS)


def reason_of(error: UserError) -> str:
    """Return the sentences of a refusal without the one that names the command."""
    return f"{error.what.partition('. ')[2]} {error.fix.rstrip('.')}."


def main_name(name: str, manager: Manager) -> str:
    """Return the main name of a command by any of its spellings."""
    return next(main for main in manager.names("commands") if name in spellings(manager, main))


def option(entry: Entry, manager: Manager) -> Answer:
    """Look up an option of a command."""
    if entry.of in load_unsupported_commands():
        return Answer(State.REFUSED, f"see the command `{entry.of}`")
    return require_name(entry, options(manager, main_name(entry.of, manager)))


def top_option(entry: Entry, manager: Manager) -> Answer:
    """Look up an option that precedes the command."""
    return require_name(entry, [text for one in cli.params for text in one.opts])


def part_of_parse(entry: Entry, manager: Manager) -> Answer:
    """Look up a command of the parse tool, or one of its options."""
    group = manager.find("commands", "parse", CommandSpec).make()
    with click.Context(group) as context:
        if not entry.of:
            return require_name(entry, group.list_commands(context))
        tool = group.get_command(context, entry.of)
        return require_name(entry, [text for one in tool.params for text in getattr(one, "accepted", one.opts)])


def field(entry: Entry, manager: Manager) -> Answer:
    """Look up a field of a file of settings."""
    if entry.of in ANSWERS["fields"]:
        return require_name(entry, known_fields(entry.of))
    if entry.name in config.ELSEWHERE:
        return Answer(State.DIFFERS, "accepted without effect, with a warning if the field is set")
    plugin_tasks = {name: spec.fields for name, spec in config.find_plugin_tasks().items()}
    fields = {"config.json": config.TOP_FIELDS, "slice": SLICE_FIELDS, **config.SECTION_FIELDS, **plugin_tasks}
    return require_name(entry, fields[entry.of])


def known_fields(of: str) -> set[str]:
    """Return the fields that the code accepts in a file other than ``config.json``."""
    parts = [imported(place) for place in ANSWERS["fields"][of]]
    return {name for part in parts for name in ([part] if isinstance(part, str) else part)}


def value(entry: Entry, manager: Manager) -> Answer:
    """Look up a value of a field of ``config.json``."""
    if entry.of == "task" and entry.name in config.UNSUPPORTED_TASKS:
        return Answer(State.REFUSED, config.UNSUPPORTED_TASKS[entry.name])
    values = {
        "task": {*config.TASKS, *config.TASK_SYNONYMS, *config.find_plugin_tasks()}, "level": config.LEVELS,
        "summary_mode": config.SUMMARIES, "risk_level": config.RISK_LEVELS,
    }  # fmt: skip
    return require_name(entry, values[entry.of])


def function(entry: Entry, manager: Manager) -> Answer:
    """Look up a function or class, and its parameters."""
    name, _, parameters = entry.name.rstrip(")").partition("(")
    home = ANSWERS["names"].get(name) or ANSWERS["homes"][entry.of]
    try:
        target = imported(f"{home}{'.' if ':' in home else ':'}{name}")
    except ImportError as error:
        if error.name != "mindspore" or name not in import_module(home).__all__:
            raise LookupError(entry) from error
        parameters = ""  # its signature is that of the recording kit, and a test with MindSpore calls it
    accepted = inspect.signature(target).parameters if parameters else {}
    if not any(one.kind is one.VAR_KEYWORD for one in accepted.values()):
        for parameter in filter(None, parameters.split(", ")):
            if parameter not in accepted:
                raise LookupError(f"{entry}: no parameter {parameter}")
    package = "probe_mindspore" if entry.of.startswith("msprobe.mindspore") else home.partition(":")[0]
    return Answer(State.WORKS, f"in `{package}`")


def file(entry: Entry, manager: Manager) -> Answer:
    """Look up the page that describes a file."""
    page, pattern = ANSWERS["files"][entry.name]
    if re.search(pattern, (DOCS / page.partition("#")[0]).read_text("utf-8")) is None:
        raise LookupError(f"{entry}: {page} does not name it")
    return Answer(State.WORKS, link_page(page))


def variable(entry: Entry, manager: Manager) -> Answer:
    """Look up an environment variable."""
    return require_name(entry, known_fields(f"{entry.of} variables"))


def stated(entry: Entry, manager: Manager) -> Answer:
    """Raise an error: ``coverage.yaml`` must state the result for other kinds of names."""
    raise LookupError(entry)


def imported(place: str) -> Any:
    """Return what ``module:name.attribute`` names."""
    module, _, path = place.partition(":")
    target = import_module(module)
    for part in path.split("."):
        target = getattr(target, part)
    return target


def require_name(entry: Entry, names: Collection[str]) -> Answer:
    """Return that an entry works, if it is one of ``names``.

    Raises:
        LookupError: It is not.
    """
    if entry.name not in names:
        raise LookupError(entry)
    return Answer(State.WORKS)


LOOKUPS = {
    "command": command, "option": option, "option of msprobe": top_option, "command of parse": part_of_parse,
    "option of parse": part_of_parse, "field": field, "value": value, "function": function, "file": file,
    "environment variable": variable, "tool": stated,
}  # fmt: skip


def page(manager: Manager) -> str:
    """Return the page: a table for each document, in which names with the same result share a row."""
    lines = [HEAD]
    document = ""
    rows: dict[tuple[str, Answer], list[str]] = {}
    for entry in [*entries(), None]:
        if entry is None or entry.document != document:
            lines += [row(of, answer, names) for (of, answer), names in rows.items()]
            rows = {}
            if entry is not None:
                document = entry.document
                lines += [f"\n## {document}\n", "| kind | names | result | details |", "|---|---|---|---|"]
        if entry is not None:
            place = f"{entry.kind} of {entry.of}" if entry.of and " of " not in entry.kind else entry.kind
            rows.setdefault((place, answer_of(entry, manager)), []).append(entry.name)
    return "\n".join(lines)


def row(of: str, answer: Answer, names: list[str]) -> str:
    """Return a line of a table."""
    return f"| {of} | {', '.join(f'`{name}`' for name in names)} | *{answer.state.value}* | {answer.why} |"
