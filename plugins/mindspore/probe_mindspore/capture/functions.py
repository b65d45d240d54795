"""Level L1: functions, methods and primitives, wrapped where they stand, while recording only.

Many function objects are known by several names (``mint.exp`` is ``ops.exp``), so what is wrapped is a
name in a module, not a function. A name that a script imported before is a copy of its own, and not seen.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import yaml
from mindspore import Tensor
from probe_recording import Threads, stack_of

from probe_mindspore import compat
from probe_mindspore.capture.calls import Calls

_INHERITED = object()
_METHODS = (FunctionType, type(str.join), type(object.__repr__))


class Patch(NamedTuple):
    """A function to wrap: what holds it, its name there, and what its records are called."""

    holder: Any
    attribute: str
    name: str
    in_place: bool = False


class Functions:
    """The wrapped functions; quiet while ``calls`` is None."""

    def __init__(self, threads: Threads) -> None:
        self.calls: Calls | None = None
        self._threads = threads
        self._custom: list[Patch] = []
        self._placed: list[tuple[Any, str, Any, Any]] = []
        self._made: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._primitives: dict[int, tuple[str, Any]] | None = None

    # -- being there -----------------------------------------------------------------------

    def install(self) -> None:
        """Put the wrappers in place."""
        if self._placed:
            return
        for patch in (*known(), *self._custom):
            self._place(patch.holder, patch.attribute, functools.partial(self._wrap, patch))
        for kind in compat.primitive_classes():
            self._place(kind, "__call__", self._wrap_primitive)

    def remove(self) -> None:
        """Put back what stood there, unless someone else put something else there since."""
        placed, self._placed = self._placed, []
        for holder, attribute, stood, wrapper in reversed(placed):
            if vars(holder).get(attribute) is not wrapper:
                continue
            if stood is _INHERITED:
                delattr(holder, attribute)
            else:
                setattr(holder, attribute, stood)

    @property
    def is_there(self) -> bool:
        """Are the wrappers in place?"""
        return bool(self._placed)

    def blind(self) -> Callable[[], None]:
        """Take everything away, until what is returned is called."""
        if not self._placed:
            return lambda: None
        self.remove()
        return self.install

    def add(self, patch: Patch) -> None:
        """Wrap one more function, now and at every start."""
        self._custom.append(patch)
        self._made.pop((id(patch.holder), patch.attribute), None)  # it may have another name now
        if self._placed:
            self._place(patch.holder, patch.attribute, functools.partial(self._wrap, patch))

    def drop(self, holder: Any, attribute: str) -> bool:
        """Let go of a function that was added; False where it was not."""
        found = [p for p in self._custom if p.holder is holder and p.attribute == attribute]
        for patch in found:
            self._custom.remove(patch)
        if found and self._placed:
            self.remove()
            self.install()
        return bool(found)

    def know(self, named: list[tuple[str, Any]]) -> None:
        """The primitives of these Cells are called by their attribute; those of others are not recorded."""
        self._primitives = {
            id(primitive): (f"Primitive.{attribute}.{type(primitive).__name__}", primitive)
            for _, cell in named
            for attribute, primitive in compat.primitives_of(cell).items()
        }

    def _place(self, holder: Any, attribute: str, wrap: Callable[[Any], Any]) -> None:
        stood = vars(holder).get(attribute, _INHERITED)
        original = getattr(holder, attribute)
        known, wrapper = self._made.get((id(holder), attribute), (None, None))
        if known is not original:  # made once, for there are some thousand and start comes every step
            wrapper = wrap(original)
            self._made[id(holder), attribute] = original, wrapper
        setattr(holder, attribute, wrapper)
        self._placed.append((holder, attribute, stood, wrapper))

    # -- seeing ----------------------------------------------------------------------------

    def _wrap(self, patch: Patch, original: Callable[..., Any]) -> Callable[..., Any]:
        threads = self._threads
        name, in_place = patch.name, patch.in_place
        inner = threads.outermost(original)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            calls = self.calls
            if calls is None or threads.inside or not calls.session.active:
                return original(*args, **kwargs)
            return calls.record(name, inner, args, kwargs, stack_of(sys._getframe(1)), in_place)

        return _named_like(recorded, original)

    def _wrap_primitive(self, original: Callable[..., Any]) -> Callable[..., Any]:
        threads = self._threads

        def recorded(primitive: Any, *args: Any, **kwargs: Any) -> Any:
            calls = self.calls
            name = self._name_of(primitive) if not threads.inside else None
            if calls is None or name is None or not calls.session.active:
                return original(primitive, *args, **kwargs)
            inner = threads.outermost(functools.partial(original, primitive))
            return calls.record(name, inner, args, kwargs, stack_of(sys._getframe(1)))

        return _named_like(recorded, original)

    def _name_of(self, primitive: Any) -> str | None:
        if self._primitives is None:
            return f"Primitive.{compat.primitive_name(primitive)}.{type(primitive).__name__}"
        return self._primitives.get(id(primitive), (None, None))[0]


def _named_like(recorded: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper named like what it wraps; without ``__wrapped__``, which compilers follow."""
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(original, attribute, None)
        if isinstance(value, str):
            setattr(recorded, attribute, value)
    setattr(recorded, compat.ORIGINAL, original)
    return recorded


@functools.cache
def known() -> tuple[Patch, ...]:
    """Everything that is wrapped, found by looking."""
    rules = yaml.safe_load((files("probe_mindspore.capture") / "families.yaml").read_text("utf-8"))
    found: dict[tuple[int, str], Patch] = {}
    for prefix, module, path in rules["families"]:
        for patch in _functions(rules, prefix, module, path):
            found.setdefault((id(patch.holder), patch.attribute), patch)
    for patch in _elsewhere(rules, [*found.values()]):
        found.setdefault((id(patch.holder), patch.attribute), patch)
    return (*found.values(), *_methods(rules))


def _functions(rules: Any, prefix: str, module: str, path: str) -> Iterator[Patch]:
    try:
        holder = importlib.import_module(module)
    except ImportError:  # a part that this MindSpore does not have
        return
    left_out = frozenset(rules["not_recorded"][prefix])
    exported = frozenset(getattr(holder, "__all__", ()))
    for name in sorted(exported) if prefix in rules["exported_alone"] else dir(holder):
        function = getattr(holder, name, None)
        if not isinstance(function, FunctionType) or name in left_out or name.startswith("_"):
            continue
        is_operator = function.__module__.startswith(tuple(rules["operators"]))
        if is_operator or function.__module__ == module or (name in exported and prefix != "Functional"):
            yield Patch(holder, name, f"{prefix}.{path}{name}", name.endswith("_"))


def _elsewhere(rules: Any, functions: Iterable[Patch]) -> Iterator[Patch]:
    """The same functions where layers of MindSpore find them, be it under names of their own."""
    names: dict[int, str] = {}
    for patch in sorted(functions, key=lambda one: one.attribute not in getattr(one.holder, "__all__", ())):
        names.setdefault(id(getattr(patch.holder, patch.attribute)), patch.name)
    for module in _modules(rules):
        for attribute, function in vars(module).items():
            if isinstance(function, FunctionType) and id(function) in names:
                name = names[id(function)]
                yield Patch(module, attribute, name, name.endswith("_"))


def _modules(rules: Any) -> Iterator[ModuleType]:
    """The modules of layers, and those that define operators."""
    for package in map(importlib.import_module, rules["layers"]):
        yield package
        for part in pkgutil.iter_modules(package.__path__):
            yield importlib.import_module(f"{package.__name__}.{part.name}")
    for name in rules["operators"]:
        try:
            yield importlib.import_module(name)
        except ImportError:  # a part that this MindSpore does not have
            continue


def _methods(rules: Any) -> Iterator[Patch]:
    left_out = frozenset(rules["not_recorded"]["Tensor"])
    public = (name for name in dir(Tensor) if not name.startswith("_") and name not in left_out)
    for name in (*public, *rules["tensor_operators"]):
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        for kind in compat.TENSORS:
            if isinstance(getattr(kind, name, None), _METHODS) and not isinstance(
                vars(kind).get(name), (staticmethod, classmethod)
            ):
                yield Patch(kind, name, f"Tensor.{name}", in_place or name.startswith("__i"))
