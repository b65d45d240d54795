"""A view of a run under common names, for matching only; tables show the original run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from probe_core.model import Kind, Record, Side, Slot, Statistics, Value
from probe_core.model.dtypes import get_dtype_kind
from probe_core.model.run import MAX_CACHED_SLOTS, Construct, Run
from probe_core.store.names import BACKWARD, FORWARD, ApiKey, parse_api_key, parse_module_key
from probe_matching.gradients import find_owners
from probe_matching.name_table import UNCHANGED_SLOTS, Dialect, Positions
from probe_matching.renamed_run import RenamedRun

ModuleRename = Callable[[str, str], tuple[str, str]]
"""A function from a module's path and class to those of its partner."""


class TranslatedRun(RenamedRun):
    """A view of a run under common names, with the same slot numbers as the run.

    Calls are numbered across all spellings of an API; a backward call has the number of its forward call.
    Across frameworks, calls are recognized by their tensors alone, dtypes are reduced to their sorts (a value
    may be Float32 in one framework and float64 in the other), and gradients get the places of their inputs.

    Attributes:
        is_loose: True across frameworks.
        inner: The number of backward calls that recorded the inside of a composite call.
    """

    def __init__(
        self,
        run: Run,
        dialect: Dialect,
        common: Dialect,
        rename: ModuleRename | None,
        side: str,
        *,
        is_across: bool = True,
    ) -> None:
        """Translate all names.

        Args:
            run: The run to view.
            dialect: The names of its framework.
            common: The common names.
            rename: The translation of modules; None to keep them.
            side: ``target`` or ``golden``, which marks values without a partner.
            is_across: True if the runs are of two frameworks.
        """
        super().__init__(run, side)
        self.is_loose = is_across
        self._dialect = dialect
        self._rename = rename or (lambda path, name: (path, name))
        self._positions = Positions(dialect, common)
        self._words: dict[str, str] = {}
        self._translated: dict[int, Record] = {}
        self._overloaded = dict(self._find_overloaded())
        self._set_names(self._create_common_keys(run.names()))
        self._inner = self._find_inner()
        self.inner = len(self._inner)
        self._compute_signatures()

    def record(self, index: int) -> Record:
        """Return the record at ``index`` under common names; the first records are kept in memory."""
        translated = self._translated.get(index)
        if translated is None:
            record, key = self._run.record(index), self._names[index]
            paths = self._find_paths(index, record)
            slots = tuple(
                self._place_slot(key, slot, path, _normalize_value(slot.value) if self.is_loose else None)
                for slot, path in zip(record.slots, paths)
            )
            translated = Record(index, key, slots)
            if self.starts[index] < MAX_CACHED_SLOTS:
                self._translated[index] = translated
        return translated

    @cached_property
    def construct(self) -> Construct:
        """The module that each call was made in, under common names."""
        return self._run.construct.rename_modules(self._translate_name)

    def find_common_name(self, key: str) -> str:
        """Return the common name of a call's API, or of a module's class."""
        module = parse_module_key(key)
        if module is not None:
            return self._dialect.classes.get(module.class_name, module.class_name)
        call = self._parse_key(key)
        return self._dialect.word(call.api) if call else ""

    # -- names -------------------------------------------------------------------------------------

    def _parse_key(self, key: str) -> ApiKey | None:
        """Return the parts of a record's name, with the API resolved if it is overloaded."""
        parts = parse_api_key(key)
        if parts is None or not self._overloaded:
            return parts
        return parts._replace(api=self._overloaded.get(key.rpartition(".")[0], parts.api))

    def _find_overloaded(self) -> Iterator[tuple[str, str]]:
        """Yield calls of overloaded APIs, without their phase, with the API that they really are."""
        for index, key in enumerate(self._run.names() if self._dialect.overloads else ()):
            parts = parse_api_key(key)
            overload = self._dialect.overloads.get(parts.api) if parts and parts.phase == FORWARD else None
            if overload is not None:
                slots = self._run.record(index).slots
                scalar_inputs = [
                    slot for slot in slots if slot.side is Side.INPUT and slot.value.kind is not Kind.TENSOR
                ]
                if len(scalar_inputs) > overload.above:
                    yield key.rpartition(".")[0], overload.api

    def _create_common_keys(self, names: Sequence[str]) -> list[str]:
        """Return the common names of all records, each once; forward calls are numbered first."""
        counts: Counter[str] = Counter()
        numbers: dict[tuple[str, int], int] = {}
        for phase in (FORWARD, BACKWARD):
            for name in names:
                parts = self._parse_key(name)
                if parts is not None and parts.phase == phase and (call := (parts.api, parts.number)) not in numbers:
                    word = self._dialect.word(parts.api)
                    numbers[call] = counts[word]
                    counts[word] += 1
        keys: list[str] = []
        for name in names:
            parts = self._parse_key(name)
            if parts is None:
                key = self._translate_module(name)
            else:
                key = f"{self._dialect.word(parts.api)}.{numbers[parts.api, parts.number]}.{parts.phase}"
            keys.append(key)
            self._words[name] = key
        return keys

    def _translate_name(self, name: str) -> str:
        return self._words.get(name) or self._translate_module(name)

    def _translate_module(self, name: str) -> str:
        module = parse_module_key(name)
        if module is None:
            return name
        path, class_name = self._rename(module.path, module.class_name)
        class_name = self._dialect.classes.get(class_name, class_name)
        return ".".join(part for part in ("Module", path, class_name, module.suffix) if part)

    # -- values ------------------------------------------------------------------------------------

    def _find_paths(self, index: int, record: Record) -> list[str | None]:
        """Return the common path of each value of a record; None for values without a partner."""
        parts = self._parse_key(record.key)
        if parts is None:
            return self._find_module_paths(record)
        api = parts.api
        if parts.phase == FORWARD:
            return [self._find_forward_path(api, slot) for slot in record.slots]
        forward = self._find_forward_record(record.key)
        if forward is None or (not self.is_loose and self._dialect.places(api).inputs is None):
            return [slot.path for slot in record.slots]
        owner_paths = iter(find_owners(record, forward))
        inputs = (slot for slot in forward.slots if slot.side is Side.INPUT)
        places = {slot.path: self._find_forward_path(api, slot) for slot in inputs}
        outputs = self._dialect.places(api).outputs
        paths: list[str | None] = []
        for slot in record.slots:
            if slot.side is not Side.OUTPUT:
                paths.append(_map_path(slot.path, outputs))
                continue
            owner = next(owner_paths)
            paths.append(None if owner is None or index in self._inner else places.get(owner))
        return paths

    def _find_forward_path(self, api: str, slot: Slot) -> str | None:
        slots = self._dialect.places(api)
        if slot.side is Side.OUTPUT:
            return _map_path(slot.path, slots.outputs)
        is_scalar = slot.value.kind is not Kind.TENSOR
        if slots.inputs is None:
            return self._positions.find_place(api, slot.path, is_scalar=is_scalar)
        path = _map_path(slot.path, slots.inputs)
        return None if path is None else self._positions.find_common_place(self._dialect.word(api), path)

    def _find_module_paths(self, record: Record) -> list[str | None]:
        module = parse_module_key(record.key)
        slots = self._dialect.places(module.class_name) if module else UNCHANGED_SLOTS
        paths: list[str | None] = []
        for slot in record.slots:
            path_map = {
                Side.INPUT: slots.inputs,
                Side.OUTPUT: slots.outputs,
                Side.PARAMETERS: slots.parameters,
                Side.PARAMETERS_GRAD: slots.gradients or slots.parameters,
            }.get(slot.side)
            paths.append(_map_path(slot.path, path_map))
        return paths

    # -- composites --------------------------------------------------------------------------------

    def _find_forward_record(self, key: str) -> Record | None:
        index = self._run.find(f"{key.removesuffix('backward')}forward")
        return None if index is None else self._run.record(index)

    def _find_inner(self) -> frozenset[int]:
        """Return the backward calls of composites, if the recorder sees only the last node of a call."""
        inner: list[int] = []
        composites = {} if self.header.is_ours else self._dialect.composites
        for index, key in enumerate(self._run.names() if composites else ()):
            parts = parse_api_key(key)
            least = composites.get(self._dialect.word(parts.api)) if parts and parts.phase == BACKWARD else None
            if least is None:
                continue
            forward = self._find_forward_record(key)
            slots = forward.slots if forward is not None else ()
            if least <= max((len(slot.value.shape or ()) for slot in slots), default=least):
                inner.append(index)
        return frozenset(inner)


def _map_path(path: str, path_map: Mapping[str, str] | None) -> str | None:
    if path_map is None:
        return path
    head, _, rest = path.partition(".")
    partner = path_map.get(path) or path_map.get(head)
    if partner is None:
        return None
    return f"{partner}.{rest}" if rest and path not in path_map else str(partner)


def _normalize_value(value: Value) -> Value:
    """Return the value as both frameworks would record it: the sort of its dtype, statistics as floats."""
    if value.kind is not Kind.TENSOR:
        return value
    dtype = get_dtype_kind(value.dtype)
    statistics = value.statistics if dtype == "float" else Statistics()
    numbers = Statistics(*(float(item) if type(item) is int else item for item in statistics))
    return value._replace(dtype=dtype, statistics=numbers, checksum=None, data_name=None, requires_grad=None)
