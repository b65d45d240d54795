"""The recorder's ``config.json``, parsed and checked.

The fields are those of msprobe's file, so that its files work unchanged, and probe's own fields ``store``,
``compile``, ``support_wrap_ops``, ``step_phases`` and ``conditions``. docs/configuration.md#config-json describes
all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe_core.errors import UserError
from probe_core.files.user_files import read_regular_file
from probe_recording.fields import MAX_NUMBER, Fields, warn
from probe_recording.fields import ConfigWarning as ConfigWarning
from probe_recording.settings.destination import FIELDS, Destination, read_destination, replace_destination
from probe_recording.settings.diff_check_settings import FIELDS as DIFF_CHECK_FIELDS
from probe_recording.settings.diff_check_settings import DiffCheck, read_diff_check
from probe_recording.settings.name_selector import NameSelector
from probe_recording.settings.recorded_settings import select_settings
from probe_recording.settings.slices import DimensionSlice, read_slices
from probe_recording.settings.stage_name import check_stage, read_stage_variable

if TYPE_CHECKING:
    from probe_recording.specs import TaskSpec

TASKS = ("statistics", "tensor", "structure", "overflow_check")
LEVELS = ("L0", "L1", "mix", "L2", "debug")
SUMMARIES = ("statistics", "md5", "xxh3")
DATA_MODES = ("forward", "backward", "input", "output")
RISK_LEVELS = ("ALL", "CORE", "FOCUS")
STORE_KINDS = ("packed", "files")
COMPILE_MODES = ("eager", "tap")
PRECISIONS = ("high", "low")

UNSUPPORTED_TASKS = {
    "run_ut": "the pre-check reads a recorded run; it does not record",
    "acc_check": "the pre-check reads a recorded run; it does not record",
    "exception_dump": "msprobe has this task for MindSpore only",
}
IGNORED_SECTIONS = frozenset(UNSUPPORTED_TASKS) | {"free_benchmark", "grad_probe", "diff_check"}
"""Sections of msprobe's file that are ignored, because another task is chosen."""
COMPARED_TASKS = ("statistics", "tensor")
COMPARED_LEVELS = ("L0", "L1", "mix")
"""Tasks and levels whose calls can be compared with a golden while the program runs."""
TASK_SYNONYMS = {"nan_check": "overflow_check", "diff_check": "statistics"}

RENAMED_FIELDS = {"ladder": "step_phases"}

TOP_FIELDS = frozenset(
    {
        "task", "dump_path", "rank", "step", "level", "enable_dataloader", "acl_config", "seed",
        "is_deterministic", "async_dump", "precision", "extra_info", "risk_level", "dump_enable",
        "store", "compile", "support_wrap_ops", "step_phases", "conditions", "custom_op_namespaces",
        "custom_wrap_ops", "stage",
    }
)  # fmt: skip
SECTION_FIELDS: dict[str, frozenset[str]] = {
    "statistics": frozenset({"scope", "list", "tensor_list", "data_mode", "summary_mode", "file_format",
                             "slice", "request_id"}) | DIFF_CHECK_FIELDS,
    "tensor": frozenset({"scope", "list", "data_mode", "summary_mode", "file_format", "backward_input",
                         "slice", "request_id", "online_run_ut_recompute"}) | FIELDS | DIFF_CHECK_FIELDS,
    "structure": frozenset({"scope", "list", "data_mode"}),
    "overflow_check": frozenset({"overflow_nums", "check_mode"}),
}  # fmt: skip
SECTION_FIELDS["nan_check"] = SECTION_FIELDS["overflow_check"]
SECTION_FIELDS["diff_check"] = SECTION_FIELDS["statistics"]
REFUSED = {
    "load": "probe does not replace the inputs of a module by recorded ones yet",
}
"""Fields of msprobe without which a recording would not be what its user expects, each with the reason."""
ELSEWHERE = frozenset({"online_run_ut_recompute", "file_format"})
"""Fields of msprobe that probe does not use; each causes a warning if it is set to something."""

_API = re.compile(
    r"(Distributed|Functional|Torch|Tensor|Mint|MintFunctional|Primitive|Aten|VF|NPU|MindSpeed|Jit|\w+)"
    r"\..+\.\d+\.(forward|backward)"
)
_MODULE = re.compile(r"(Cell|Module)\..+\.(forward|backward)\.\d+")
_PATH = re.compile(r"[A-Za-z0-9_./-]+")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one recording: the calls and modules to record, and the directory to write to.

    Attributes:
        dump_path: The directory of the run, made absolute.
        task: The data that is recorded, one of ``TASKS``, or a task that a plugin provides.
        level: The calls that are recorded, one of ``LEVELS``.
        ranks: Numbers of the ranks to record; empty for all.
        steps: Numbers of the steps to record; empty for all.
        scope: Names of the first and the last record of a range; empty for no range.
        names: Parts of names (the field ``list``); a record is taken if its name contains one of them.
        tensor_names: Parts of names (``tensor_list``); such records save their tensors although the task is
            statistics.
        slices: The slices of tensors that are recorded (``slice``); empty for whole tensors.
        request: The request of a batch whose rows are recorded (``request_id``); empty for all rows.
        directions: Those of forward and backward that ``data_mode`` selects.
        sides: Those of input and output that ``data_mode`` selects.
        parameter_gradients: True to record the gradients of parameters.
        summary: ``statistics``, or a checksum to record beside them: ``md5`` (a CRC-32) or ``xxh3``.
        asynchronous: True to keep data on the device until the end of the step (``async_dump``).
        precision: ``high`` accumulates statistics on a device in float64, ``low`` in float32.
        extra_info: True to write ``stack.json`` and ``construct.json``.
        risk_level: The family of APIs to record, one of ``RISK_LEVELS``.
        enabled: The value of ``dump_enable`` when the file was first read; None if it has none.
        dataloader: True to begin and end steps by the data loader (``enable_dataloader``).
        acl_config: A dump configuration of ACL for level L2 on an NPU; empty for a default one.
        seed: The random seed to set at the start; None to set none.
        deterministic: True to use deterministic algorithms; the random seed is then set, too.
        overflow_count: Number of overflowing records after which the search stops; -1 for never.
        store: ``packed`` for one tensor file per rank and step, ``files`` for one file per tensor.
        compile: ``eager`` to run compiled code uncompiled while it is recorded, ``tap`` to keep it compiled.
        backward_input: Files of gradients, with which level L2 on an NPU runs the backward of ``names``.
        wrap_ops: A yaml file that names the APIs to record; None for the built-in list.
        operator_namespaces: The namespaces of custom operators to record; None for all.
        wrapped_functions: A yaml file that names Python functions to record; None for none.
        step_phases: True to write the phases of each training step to ``step_phases.json``.
        conditions: True to write the conditions of each step to ``conditions.json``.
        stage: The directory between a step and its ranks; empty for none.
        settings: What the plugin of the task parsed from its section; None for the recorder's own tasks.
        online: The receiver that forward calls are sent to instead of being written; None to write them.
        diff_check: The golden that calls are compared with while the program runs, of which the first that differ
            save their tensors (``bench_path`` and ``diff_nums``); None for no golden.
        path: The file itself, read again at each start for ``dump_enable``.
        shown_path: ``dump_path`` as the user wrote it.
        repeated: The settings that the run states, by which another run can be recorded in the same way.
    """

    dump_path: Path
    task: str = "statistics"
    level: str = "L1"
    ranks: frozenset[int] = frozenset()
    steps: frozenset[int] = frozenset()
    scope: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    tensor_names: tuple[str, ...] = ()
    slices: tuple[DimensionSlice, ...] = ()
    request: str = ""
    directions: frozenset[str] = frozenset({"forward", "backward"})
    sides: frozenset[str] = frozenset({"input", "output"})
    parameter_gradients: bool = True
    summary: str = "statistics"
    asynchronous: bool = False
    precision: str = "low"
    extra_info: bool = True
    risk_level: str = "ALL"
    enabled: bool | None = None
    dataloader: bool = False
    acl_config: str = ""
    seed: int | None = None
    deterministic: bool = False
    overflow_count: int = 1
    store: str = "packed"
    compile: str = "eager"
    backward_input: tuple[str, ...] = ()
    wrap_ops: Path | None = None
    operator_namespaces: frozenset[str] | None = None
    wrapped_functions: Path | None = None
    step_phases: bool = True
    conditions: bool = True
    stage: str = ""
    settings: Any = None
    online: Destination | None = None
    diff_check: DiffCheck | None = None
    path: Path | None = None
    shown_path: str = ""
    repeated: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def saves_tensors(self) -> bool:
        """True if the data of tensors are written."""
        return self.task in ("tensor", "overflow_check") or bool(self.tensor_names) or self.diff_check is not None

    @property
    def records_step_phases(self) -> bool:
        """True if the phases of a step are recorded, if the recorder of the framework supports them."""
        return self.step_phases and self.task in ("statistics", "tensor") and (self.modules or self.apis)

    def with_run_options(self, seed: int | None, *, is_double: bool) -> Config:
        """Return the configuration with options of ``probe run`` among the settings that the run states."""
        options = ({} if seed is None else {"seed": seed}) | ({"double": True} if is_double else {})
        return replace(self, repeated={**self.repeated, **options})

    def read_enabled(self) -> bool:
        """Return the current value of ``dump_enable``, for which the file is read again."""
        if self.enabled is None or self.path is None:
            return self.enabled is not False
        try:
            return bool(json.loads(self.path.read_text("utf-8")).get("dump_enable", True))
        except (OSError, ValueError, AttributeError):
            return self.enabled

    @property
    def modules(self) -> bool:
        """True if modules are recorded."""
        return self.level in ("L0", "mix")

    @property
    def apis(self) -> bool:
        """True if API calls are recorded."""
        return self.level in ("L1", "mix")


def load_config(path: str | Path | None, **overrides: Any) -> Config:
    """Return the configuration in a file.

    Args:
        path: A ``config.json``; None for the defaults.
        overrides: Top-level fields that replace those of the file, unless they are None.

    Raises:
        UserError: The file is missing or not valid JSON, or a field has a wrong value.
    """
    fields: dict[str, Any] = {}
    subject = "The configuration"
    if path is not None:
        subject = f"The configuration {path}"
        fields = _read(path)
    overrides = {"stage": read_stage_variable(), **overrides}
    fields.update({name: value for name, value in overrides.items() if value is not None})
    config = parse(fields, subject)
    return replace(config, path=Path(path).absolute()) if path is not None else config


def find_plugin_tasks() -> dict[str, TaskSpec]:
    """Return the tasks that the installed plugins provide, by name."""
    from probe_recording.installed import load_tasks  # loads the plugins

    return load_tasks()


def _is_other_task(name: Any) -> bool:
    """Return True for the name of a task that the recorder does not have."""
    known_tasks = {*TASKS, *TASK_SYNONYMS, *UNSUPPORTED_TASKS, ""}
    return isinstance(name, str) and name not in UNSUPPORTED_TASKS and name.lower() not in known_tasks


def _read(path: str | Path) -> dict[str, Any]:
    try:
        value = json.loads(read_regular_file(Path(path)).decode("utf-8"))
    except OSError as error:
        raise UserError(
            f'The configuration "{path}" cannot be read: {error.strerror or error}.',
            "Give the path of a config.json, or leave config_path out.",
        ) from None
    except (ValueError, RecursionError) as error:
        raise UserError(
            f'The configuration "{path}" is not valid JSON: {error}.',
            "Correct the file; it must be one JSON object.",
        ) from None
    if not isinstance(value, dict):
        raise UserError(
            f'The configuration "{path}" must be one JSON object.',
            'For example {"task": "statistics", "dump_path": "dump"}.',
        )
    return value


def parse(fields: Mapping[str, Any], subject: str = "The configuration") -> Config:
    """Return the configuration that the fields of a ``config.json`` describe.

    Args:
        fields: The JSON object.
        subject: The subject that error messages begin with.

    Raises:
        UserError: A field has a wrong value, or two fields contradict each other.
    """
    reader = Fields(fields, subject)
    plugin_tasks = find_plugin_tasks() if _is_other_task(fields.get("task")) else {}
    task = reader.choice("task", (*TASKS, *plugin_tasks), "statistics", TASK_SYNONYMS, UNSUPPORTED_TASKS)
    level = reader.choice("level", LEVELS, "L1")
    section_name = _choose_section(fields, task)
    section = reader.section(section_name)
    section_settings = _parse_section(section, task, level, str(fields.get("task")))
    _warn_fields(reader, section, section_name, level, plugin_tasks)
    seed = reader.number("seed", 0, 2**32 - 1) if "seed" in fields else None
    selected = select_settings(fields, section_name, section_settings["task"])
    config = Config(
        dump_path=_dump_path(reader),
        shown_path=reader.text("dump_path", ""),
        level=level,
        ranks=reader.numbers("rank"),
        steps=reader.numbers("step"),
        asynchronous=reader.flag("async_dump", False),
        precision=reader.choice("precision", PRECISIONS, "low"),
        extra_info=reader.flag("extra_info", True),
        risk_level=reader.choice("risk_level", RISK_LEVELS, "ALL"),
        enabled=reader.flag("dump_enable", None),
        dataloader=reader.flag("enable_dataloader", False),
        acl_config=reader.text("acl_config", ""),
        seed=seed,
        deterministic=reader.flag("is_deterministic", False),
        store=reader.choice("store", STORE_KINDS, "packed"),
        compile=reader.choice("compile", COMPILE_MODES, "eager"),
        wrap_ops=reader.path("support_wrap_ops"),
        operator_namespaces=_parse_namespaces(reader),
        wrapped_functions=reader.path("custom_wrap_ops"),
        step_phases=reader.flag("step_phases", reader.flag("ladder", True)),
        conditions=reader.flag("conditions", True),
        stage=check_stage(reader.text("stage", ""), f'{subject}: "stage"'),
        settings=plugin_tasks[task].parse(section) if task in plugin_tasks else None,
        repeated={"config": selected} if selected else {},
        **section_settings,
    )
    online = read_destination(section) if task == "tensor" else None
    return check_consistency(replace_destination(config, online, subject), subject)


def _parse_namespaces(reader: Fields) -> frozenset[str] | None:
    """Return the namespaces of custom operators; None for all."""
    is_set = reader.value("custom_op_namespaces") is not None
    return frozenset(reader.names("custom_op_namespaces")) if is_set else None


def _parse_section(section: Fields, task: str, level: str, task_name: str) -> dict[str, Any]:
    """Return the fields of a configuration that the section of its task sets.

    Args:
        section: The section.
        task: The task.
        level: The level.
        task_name: The name of the task as the user wrote it.
    """
    has_values = task in COMPARED_TASKS
    diff_check = _parse_diff_check(section, task_name) if has_values else None
    directions, sides, gradients = _parse_data_mode(section)
    return {
        "task": task if diff_check is None else "statistics",
        "scope": section.names("scope") if task in TASKS else (),
        "names": _record_names(section),
        "tensor_names": section.names("tensor_list") if task == "statistics" and level != "debug" else (),
        "slices": read_slices(section) if has_values else (),
        "request": _parse_request(section) if has_values else "",
        "directions": directions,
        "sides": sides,
        "parameter_gradients": gradients,
        "summary": section.choice("summary_mode", SUMMARIES, "statistics", {"xor": "xxh3"}),
        "overflow_count": _parse_overflow_count(section),
        "backward_input": section.names("backward_input") if level == "L2" else (),
        "diff_check": diff_check,
    }


def _warn_fields(
    reader: Fields, section: Fields, section_name: str, level: str, plugin_tasks: Mapping[str, TaskSpec]
) -> None:
    """Refuse fields that probe cannot follow, and warn about fields that have no effect."""
    section_fields = {**SECTION_FIELDS, **{name: frozenset(spec.fields) for name, spec in plugin_tasks.items()}}
    reader.refuse(REFUSED)
    reader.warn_unknown(
        TOP_FIELDS | set(section_fields) | IGNORED_SECTIONS | RENAMED_FIELDS.keys() | REFUSED.keys(),
        section_fields[section_name],
        f'it belongs in the section "{section_name}"',
    )
    section.warn_unknown(section_fields[section_name], TOP_FIELDS, "it belongs outside of the section")
    section.warn_unused(ELSEWHERE if level == "L2" else ELSEWHERE | {"backward_input"})
    for old, new in RENAMED_FIELDS.items():
        if reader.has(old):
            warn(f'{reader.subject}: the field "{old}" is called "{new}" now; the old name works until version 0.3')


def _choose_section(fields: Mapping[str, Any], task: str) -> str:
    """Return the name of the section that holds the fields of a task."""
    names = [name for name in (str(fields.get("task")).lower(), "nan_check") if TASK_SYNONYMS.get(name) == task]
    return next((name for name in names if name in fields), task)


def _parse_diff_check(section: Fields, task: str) -> DiffCheck | None:
    """Return the golden to compare with while the program runs."""
    diff_check = read_diff_check(section)
    if diff_check is None and task.lower() == "diff_check":
        raise section.wrong(
            "bench_path", "is missing, so there is no golden to compare with", 'For example "bench_path": "golden".'
        )
    return diff_check


def _record_names(section: Fields) -> tuple[str, ...]:
    """Return the entries of ``list``, whose regular expressions are valid."""
    names = section.names("list")
    try:
        NameSelector(names)
    except ValueError as error:
        raise section.wrong("list", f"holds a wrong entry: {error}", 'For example "name-regex(linear|relu)".') from None
    return names


def _parse_request(section: Fields) -> str:
    return "" if section.value("request_id") is None else str(section.text("request_id", ""))


def parse_steps(text: str) -> list[int | str]:
    """Return the steps of an option such as ``0,5-7``; ``all`` gives an empty list, which means all steps."""
    if text.strip() == "all":
        return []
    return [int(part) if part.isdigit() else part for part in (p.strip() for p in text.split(",")) if part]


def check_consistency(config: Config, subject: str) -> Config:
    """Return the configuration after checks across fields, which refuse it or correct it with a warning."""
    if config.task == "structure" and config.level not in ("L0", "mix"):
        warn(f'{subject}: task "structure" needs level L0 or mix; mix is used.')
        config = replace(config, level="mix")
    if config.scope:
        _check_scope(config, subject)
    if config.slices or config.request:
        config = _check_slices(config, subject)
    for is_conflict, problem, fix in _iterate_conflicts(config):
        if is_conflict:
            raise UserError(f"{subject}: {problem}.", fix)
    return config


def _check_scope(config: Config, subject: str) -> None:
    """Raise a UserError if ``scope`` is not two names of records at the level."""
    if len(config.scope) != 2:
        raise UserError(
            f'{subject}: "scope" must be empty or hold two names, not {len(config.scope)}.',
            "Write the names of the first and of the last record to take.",
        )
    kinds = {"L0": (_MODULE,), "mix": (_API, _MODULE)}.get(config.level, (_API,))
    for name in config.scope:
        if not any(kind.fullmatch(name) for kind in kinds):
            raise UserError(
                f'{subject}: "{name}" in "scope" cannot be the name of a record at level {config.level}.',
                "Write names such as:",
                ("Functional.linear.0.forward", "Module.fc.Linear.forward.0"),
            )


def _iterate_conflicts(config: Config) -> Iterator[tuple[bool, str, str]]:
    """Yield the combinations of fields that are refused: True if the configuration has it, the problem, the fix."""
    other = f"level {config.level}" if config.online is None else "sending calls to a receiver"
    yield (
        config.asynchronous and config.summary != "statistics",
        f'"async_dump" cannot be combined with "summary_mode": "{config.summary}"',
        'Set "async_dump": false, or "summary_mode": "statistics".',
    )
    yield (
        config.asynchronous and config.task == "tensor" and not config.names and config.level != "debug",
        '"async_dump" with task "tensor" keeps all tensors of a step on the device, so "list" must limit them',
        'Name the records in "list", or set "async_dump": false.',
    )
    yield (
        config.level == "debug" and config.task not in ("statistics", "tensor"),
        f'level "debug" needs the task statistics or tensor, not {config.task}',
        'Set "task": "statistics".',
    )
    yield (
        config.diff_check is not None and (config.online is not None or config.level not in COMPARED_LEVELS),
        f'"bench_path" cannot be combined with {other}',
        'Remove "bench_path", or record at level L0, L1 or mix into a directory.',
    )
    yield (
        config.compile == "tap" and config.level != "L0",
        '"compile": "tap" works at level L0 only, because compiled code makes no API calls',
        'Set "level": "L0", or "compile": "eager".',
    )


def _check_slices(config: Config, subject: str) -> Config:
    """Return the configuration without slices, after a warning, if its level records no parts of tensors."""
    if config.online is not None:
        raise UserError(
            f'{subject}: "slice" and "request_id" cannot be combined with "online_run_ut", '
            "which runs each call again with whole tensors.",
            'Remove "slice" and "request_id".',
        )
    if config.modules or config.apis:
        return config
    warn(f'{subject}: "slice" and "request_id" need level L0, L1 or mix; they are ignored.')
    return replace(config, slices=(), request="")


def _parse_data_mode(section: Fields) -> tuple[frozenset[str], frozenset[str], bool]:
    """Return the directions and sides to record, and True if parameters' gradients are recorded too.

    The rules are those of docs/configuration.md#data-mode.
    """
    modes = set(section.names("data_mode", "forward")) or {"all"}
    if "all" in modes:
        if len(modes) > 1:
            raise section.wrong(
                "data_mode",
                'combines "all" with other modes, which it includes',
                'Write "data_mode": ["all"], or leave "all" out.',
            )
        modes = set()
    if unknown := modes - set(DATA_MODES):
        raise section.wrong(
            "data_mode", f'holds the unknown mode "{min(unknown)}"', "Choose from:", ("all", *DATA_MODES)
        )
    directions = modes & {"forward", "backward"} or {"forward", "backward"}
    sides = modes & {"input", "output"} or {"input", "output"}
    return frozenset(directions), frozenset(sides), "backward" in directions


def _dump_path(reader: Fields) -> Path:
    text = reader.text("dump_path", "")
    if not text:
        raise reader.wrong(
            "dump_path",
            "is missing, so there is no directory to write the run to",
            'For example "dump_path": "dump".',
        )
    path = Path(text).absolute()
    if not _PATH.fullmatch(str(path)):
        bad = next(c for c in str(path) if not _PATH.fullmatch(c))
        raise reader.wrong(
            "dump_path",
            f'is "{path}" in full, which holds {bad!r}, a character that the path of a run cannot have',
            "Use only letters, digits, _ - . and /, also in the name of the working directory.",
        )
    return path


def _parse_overflow_count(section: Fields) -> int:
    count = section.number("overflow_nums", -1, MAX_NUMBER, 1)
    if count == 0:
        raise section.wrong(
            "overflow_nums",
            "must not be 0",
            "Write the number of overflows to stop after, or -1 to never stop.",
        )
    return count
