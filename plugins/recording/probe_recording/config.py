"""What is recorded: the recorder's ``config.json``, parsed and checked.

The fields are those of the peer's file (spec/dump 1), so that its files work unchanged; ``store``,
``compile`` and ``support_wrap_ops`` are ours.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, meant
from probe_core.files.given import read_given

TASKS = ("statistics", "tensor", "structure", "overflow_check")
LEVELS = ("L0", "L1", "mix", "L2", "debug")
SUMMARIES = ("statistics", "md5", "xxh3")
DATA_MODES = ("forward", "backward", "input", "output")
RISK_LEVELS = ("ALL", "CORE", "FOCUS")
STORES = ("packed", "files")
COMPILES = ("eager", "tap")
PRECISIONS = ("high", "low")

OTHER_TASKS = {
    "run_ut": "the pre-check reads a run; it records none",
    "acc_check": "the pre-check reads a run; it records none",
    "free_benchmark": "probe does not perturb operators while it records",
    "grad_probe": "record level L0, whose parameters_grad hold every gradient",
    "exception_dump": "that is for MindSpore",
    "diff_check": "record both runs and compare them",
}
SYNONYMS = {"nan_check": "overflow_check"}

TOP_FIELDS = frozenset(
    {
        "task", "dump_path", "rank", "step", "level", "enable_dataloader", "acl_config", "seed",
        "is_deterministic", "async_dump", "precision", "extra_info", "risk_level", "dump_enable",
        "store", "compile", "support_wrap_ops",
    }
)  # fmt: skip
SECTION_FIELDS: dict[str, frozenset[str]] = {
    "statistics": frozenset({"scope", "list", "tensor_list", "data_mode", "summary_mode", "file_format",
                             "slice", "request_id"}),
    "tensor": frozenset({"scope", "list", "data_mode", "summary_mode", "file_format", "backward_input",
                         "slice", "request_id", "online_run_ut", "nfs_path", "host", "port", "tls_path",
                         "online_run_ut_recompute"}),
    "structure": frozenset({"scope", "list", "data_mode"}),
    "overflow_check": frozenset({"overflow_nums", "check_mode"}),
}  # fmt: skip
SECTION_FIELDS["nan_check"] = SECTION_FIELDS["overflow_check"]
ELSEWHERE = frozenset({"backward_input", "online_run_ut", "nfs_path", "host", "port", "tls_path",
                       "online_run_ut_recompute", "slice", "request_id", "file_format"})  # fmt: skip
"""Known fields that this recorder has no use for; each is warned about where it asks for something."""

LARGEST = 1_000_000
_RANGE = re.compile(r"(\d+)-(\d+)")
_API = re.compile(
    r"(Distributed|Functional|Torch|Tensor|Mint|MintFunctional|Primitive|Aten|VF|NPU|MindSpeed|Jit|\w+)"
    r"\..+\.\d+\.(forward|backward)"
)
_MODULE = re.compile(r"(Cell|Module)\..+\.(forward|backward)\.\d+")
_PATH = re.compile(r"[A-Za-z0-9_./-]+")


class ConfigWarning(UserWarning):
    """A configuration that works, though perhaps not as its writer meant."""


@dataclass(frozen=True, slots=True)
class Config:
    """What to record and where to.

    Attributes:
        dump_path: The root of the run, absolute.
        shown_path: The same as it was written.
        ranks, steps: Which ones; empty for all.
        scope: No names, or the first and the last record that is wanted.
        names: Parts of names; a record is wanted if its name holds one of them.
        tensor_names: The same for tensors that are saved although the task is statistics.
        directions, sides: What ``data_mode`` comes to.
        summary: ``statistics``, or with a checksum beside them: ``md5`` (a CRC-32), ``xxh3``.
        overflow_count: How many overflowing records end the search; -1 for no end.
        path: The file that all this stands in, read again at each step for ``dump_enable``.
    """

    dump_path: Path
    task: str = "statistics"
    level: str = "L1"
    ranks: frozenset[int] = frozenset()
    steps: frozenset[int] = frozenset()
    scope: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    tensor_names: tuple[str, ...] = ()
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
    wrap_ops: Path | None = None
    path: Path | None = None
    shown_path: str = ""

    @property
    def saves_tensors(self) -> bool:
        """True where the data of tensors are written."""
        return self.task in ("tensor", "overflow_check") or bool(self.tensor_names)

    @property
    def modules(self) -> bool:
        """True where modules are recorded."""
        return self.level in ("L0", "mix")

    @property
    def apis(self) -> bool:
        """True where API calls are recorded."""
        return self.level in ("L1", "mix")


def load_config(path: str | Path | None, **overrides: Any) -> Config:
    """The configuration in ``path`` (none: the defaults); arguments that are not None come before it.

    Raises:
        UserError: No such file, no JSON, or a field that is not what it must be.
    """
    fields: dict[str, Any] = {}
    what = "The configuration"
    if path is not None:
        what = f"The configuration {path}"
        fields = _read(path)
    fields.update({name: value for name, value in overrides.items() if value is not None})
    config = parse(fields, what)
    return replace(config, path=Path(path).absolute()) if path is not None else config


def _read(path: str | Path) -> dict[str, Any]:
    try:
        value = json.loads(read_given(Path(path)).decode("utf-8"))
    except OSError as error:
        raise UserError(
            f'The configuration "{path}" cannot be read: {error.strerror or error}.',
            "Give the path of a config.json, or leave config_path out.",
        ) from None
    except (ValueError, RecursionError) as error:
        raise UserError(
            f'The configuration "{path}" is not valid JSON: {error}.', "Mend the file; it is one JSON object."
        ) from None
    if not isinstance(value, dict):
        raise UserError(
            f'The configuration "{path}" must be one JSON object.',
            'For example {"task": "statistics", "dump_path": "dump"}.',
        )
    return value


def parse(fields: Mapping[str, Any], what: str = "The configuration") -> Config:
    """The configuration that ``fields`` say; ``what`` opens the messages."""
    reader = _Fields(fields, what)
    task = reader.choice("task", TASKS, "statistics", SYNONYMS, OTHER_TASKS)
    level = reader.choice("level", LEVELS, "L1")
    section_name = next((n for n in ("nan_check", task) if n in fields and SYNONYMS.get(n, n) == task), task)
    section = reader.section(section_name)
    reader.warn_unknown(
        TOP_FIELDS | set(SECTION_FIELDS) | set(OTHER_TASKS),
        SECTION_FIELDS[section_name],
        f'it belongs in the section "{section_name}"',
    )
    section.warn_unknown(SECTION_FIELDS[section_name], TOP_FIELDS, "it belongs outside of the section")
    section.warn_unused(ELSEWHERE)
    directions, sides, gradients = _data_mode(section)
    config = Config(
        dump_path=_dump_path(reader),
        shown_path=reader.text("dump_path", ""),
        task=task,
        level=level,
        ranks=reader.numbers("rank"),
        steps=reader.numbers("step"),
        scope=section.names("scope"),
        names=section.names("list"),
        tensor_names=section.names("tensor_list") if task == "statistics" and level != "debug" else (),
        directions=directions,
        sides=sides,
        parameter_gradients=gradients,
        summary=section.choice("summary_mode", SUMMARIES, "statistics", {"xor": "xxh3"}),
        asynchronous=reader.flag("async_dump", False),
        precision=reader.choice("precision", PRECISIONS, "low"),
        extra_info=reader.flag("extra_info", True),
        risk_level=reader.choice("risk_level", RISK_LEVELS, "ALL"),
        enabled=reader.flag("dump_enable", None),
        dataloader=reader.flag("enable_dataloader", False),
        acl_config=reader.text("acl_config", ""),
        seed=reader.number("seed", 0, 2**32 - 1) if "seed" in fields else None,
        deterministic=reader.flag("is_deterministic", False),
        overflow_count=_overflow_count(section),
        store=reader.choice("store", STORES, "packed"),
        compile=reader.choice("compile", COMPILES, "eager"),
        wrap_ops=Path(ops) if (ops := reader.text("support_wrap_ops", "")) else None,
    )
    return _consistent(config, what)


def parse_steps(text: str) -> list[int | str]:
    """The steps that a command line names: ``0,5-7``; ``all`` gives none, which means all."""
    if text.strip() == "all":
        return []
    return [int(part) if part.isdigit() else part for part in (p.strip() for p in text.split(",")) if part]


def _consistent(config: Config, what: str) -> Config:
    """The configuration, with what contradicts itself refused or mended aloud."""
    if config.task == "structure" and config.level not in ("L0", "mix"):
        _warn(f'{what}: task "structure" needs level L0 or mix; mix is used.')
        config = replace(config, level="mix")
    if config.scope:
        if len(config.scope) != 2:
            raise UserError(
                f'{what}: "scope" must be empty or hold two names, not {len(config.scope)}.',
                "Name the first and the last record that you want.",
            )
        for name in config.scope:
            kinds = {"L0": (_MODULE,), "mix": (_API, _MODULE)}.get(config.level, (_API,))
            if not any(kind.fullmatch(name) for kind in kinds):
                raise UserError(
                    f'{what}: "{name}" in "scope" is no name of a record at level {config.level}.',
                    "Names look like these:",
                    ("Functional.linear.0.forward", "Module.fc.Linear.forward.0"),
                )
    if config.asynchronous and config.summary != "statistics":
        raise UserError(
            f'{what}: "async_dump" does not go with summary_mode "{config.summary}".',
            'Set "async_dump": false, or "summary_mode": "statistics".',
        )
    if config.asynchronous and config.task == "tensor" and not config.names and config.level != "debug":
        raise UserError(
            f'{what}: "async_dump" of tensors keeps them on the device, so "list" must say which.',
            'Name some records in "list", or set "async_dump": false.',
        )
    if config.level == "debug" and config.task not in ("statistics", "tensor"):
        raise UserError(
            f'{what}: level "debug" goes with the tasks statistics and tensor.', 'Set "task": "statistics".'
        )
    if config.compile == "tap" and config.level != "L0":
        raise UserError(
            f'{what}: "compile": "tap" keeps compiled graphs, in which only modules can be seen.',
            'Set "level": "L0", or "compile": "eager".',
        )
    return config


class _Fields:
    """The fields of one JSON object, taken out by name and checked."""

    def __init__(self, fields: Mapping[str, Any], what: str) -> None:
        self._fields = fields
        self._what = what

    def section(self, name: str) -> _Fields:
        """The section ``name``; an empty one if it is left out."""
        value = self._fields.get(name) or {}
        if not isinstance(value, Mapping):
            raise self._wrong(name, "must be an object", f'For example "{name}": {{}}.')
        return _Fields(value, f'{self._what}: section "{name}"')

    def warn_unknown(self, known: Set[str], others: Set[str], place: str) -> None:
        """Name the fields that nobody knows, and what they may have been meant to be.

        Args:
            known: The fields that may stand here.
            others: Fields that stand in another place.
            place: What to say of these.
        """
        for name in self._fields:
            if name not in known:
                close = meant(name, sorted(known))
                hint = f"; {place}" if name in others else f'; did you mean "{close}"?' if close else ""
                _warn(f'{self._what}: unknown field "{name}" is ignored{hint}')

    def warn_unused(self, names: frozenset[str]) -> None:
        """Name the fields that are known and ask for what this recorder does not do."""
        for name in sorted(names & self._fields.keys()):
            if self._fields[name] not in ("", [], {}, None, False, "npy"):
                _warn(f'{self._what}: "{name}" is not supported here and is ignored')

    def choice(
        self,
        name: str,
        choices: tuple[str, ...],
        default: str,
        synonyms: Mapping[str, str] | None = None,
        elsewhere: Mapping[str, str] | None = None,
    ) -> str:
        """One of ``choices``, however its letters are written."""
        value = self._fields.get(name, default)
        if value in ("", None):
            return default
        spelt = {choice.lower(): choice for choice in choices}
        if isinstance(value, str):
            value = (synonyms or {}).get(value.lower(), value)
            if value.lower() in spelt:
                return spelt[value.lower()]
            if elsewhere and value in elsewhere:
                raise self._wrong(name, f'"{value}" records nothing here: {elsewhere[value]}', "", choices)
        raise self._wrong(name, f"must be one of the choices below, not {value!r:.60}", "", choices)

    def flag(self, name: str, default: Any) -> Any:
        """True or false."""
        value = self._fields.get(name, default)
        if value is not default and not isinstance(value, bool):
            raise self._wrong(name, f"must be true or false, not {value!r:.40}", "Write true or false.")
        return value

    def text(self, name: str, default: str) -> str:
        """A text."""
        value = self._fields.get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "must be a text", "Put it in quotes.")
        return value

    def number(self, name: str, low: int, high: int, default: int = 0) -> int:
        """A whole number between two bounds."""
        value = self._fields.get(name, default)
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(name, f"must be a whole number from {low} to {high}", "Change it.")
        return value

    def numbers(self, name: str) -> frozenset[int]:
        """Whole numbers and ranges such as ``"2-5"``, both ends included."""
        value = self._fields.get(name)
        if value is None:
            return frozenset()
        if not isinstance(value, list):
            raise self._wrong(name, "must be a list", f'For example "{name}": [0, "2-5"].')
        found: set[int] = set()
        for item in value:
            first = last = item
            if isinstance(item, str) and (match := _RANGE.fullmatch(item.strip())):
                first, last = int(match[1]), int(match[2])
            if type(first) is not int or type(last) is not int or not 0 <= first <= last <= LARGEST:
                raise self._wrong(
                    name,
                    f'holds {item!r:.40}, neither a number from 0 on nor a range such as "2-5"',
                    f"Numbers go up to {LARGEST}.",
                )
            found.update(range(first, last + 1))
        return frozenset(found)

    def names(self, name: str, example: str = "relu") -> tuple[str, ...]:
        """Texts, none of them empty."""
        value = self._fields.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self._wrong(
                name, "must be a list of names, none of them empty", f'For example "{name}": ["{example}"].'
            )
        return tuple(value)

    def _wrong(self, name: str, problem: str, fix: str, choices: tuple[str, ...] = ()) -> UserError:
        return UserError(f'{self._what}: "{name}" {problem}.', fix, choices)


def _data_mode(section: _Fields) -> tuple[frozenset[str], frozenset[str], bool]:
    """Directions and sides that are recorded, and whether gradients of parameters are (spec/dump 2.3)."""
    modes = set(section.names("data_mode", "forward")) or {"all"}
    if "all" in modes:
        if len(modes) > 1:
            raise section._wrong("data_mode", '"all" must stand alone', 'Leave "all" out, or the others.')
        modes = set()
    if unknown := modes - set(DATA_MODES):
        raise section._wrong("data_mode", f'holds "{min(unknown)}"', "The choices are:", ("all", *DATA_MODES))
    directions = modes & {"forward", "backward"} or {"forward", "backward"}
    sides = modes & {"input", "output"} or {"input", "output"}
    return frozenset(directions), frozenset(sides), "backward" in directions


def _dump_path(reader: _Fields) -> Path:
    text = reader.text("dump_path", "")
    if not text:
        raise reader._wrong("dump_path", "is missing", 'Say where the run goes: "dump_path": "dump".')
    path = Path(text).absolute()
    if not _PATH.fullmatch(str(path)):
        bad = next(c for c in str(path) if not _PATH.fullmatch(c))
        raise reader._wrong(
            "dump_path",
            f'leads to "{path}", which holds {bad!r}',
            "Use letters, digits, _ - . and / only; the working directory counts as well.",
        )
    return path


def _overflow_count(section: _Fields) -> int:
    count = section.number("overflow_nums", -1, LARGEST, 1)
    if count == 0:
        raise section._wrong("overflow_nums", "must not be 0", "Give a count, or -1 to search to the end.")
    return count


def _warn(text: str) -> None:
    warnings.warn(text, ConfigWarning, stacklevel=2)
