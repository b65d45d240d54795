"""Level L1: capture of functions, methods and primitives, which are wrapped while recording.

Many functions have several names (``mint.exp`` is ``ops.exp``), so the names in modules are replaced. A name
that a script imported from a module before recording started is not replaced, and its calls are not recorded.
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
from probe_recording import AttributePatches, Threads, stack_of

from probe_mindspore import compat
from probe_mindspore.capture.call_recorder import MindSporeCallRecorder
from probe_mindspore.capture.draws import DrawWatch

_METHOD_TYPES = (FunctionType, type(str.join), type(object.__repr__))


class Patch(NamedTuple):
    """A function to wrap.

    Attributes:
        holder: The module or class that holds it.
        attribute: Its name there.
        name: The name of its records, without the count.
        in_place: True if it writes its first argument.
    """

    holder: Any
    attribute: str
    name: str
    in_place: bool = False


class FunctionWrappers:
    """Wrappers around functions, methods and primitives.

    Args:
        threads: State of the recorder in each thread.
        draws: The watcher to which each call of a primitive is shown, recorded or not.

    Attributes:
        calls: Records the calls; None to record nothing.
    """

    def __init__(self, threads: Threads, draws: DrawWatch) -> None:
        self.calls: MindSporeCallRecorder | None = None
        self._threads = threads
        self._draws = draws
        self._has_functions = False
        self._custom: list[Patch] = []
        self._wrappers = AttributePatches()
        self._cached_wrappers: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._primitives: dict[int, tuple[str, Any]] | None = None

    # -- installing ------------------------------------------------------------------------

    def install(self) -> None:
        """Install the wrappers."""
        if self._wrappers:
            return
        self._has_functions = True
        for patch in (*list_patches(), *self._custom):
            self._replace(patch.holder, patch.attribute, functools.partial(self._wrap, patch))
        self.install_primitives()

    def install_primitives(self) -> None:
        """Install the wrappers of primitives alone, to see which of them draw random numbers."""
        for kind in compat.list_primitive_classes():
            self._replace(kind, "__call__", self._wrap_primitive)

    def remove(self) -> None:
        """Remove the wrappers, except where another package has replaced one since."""
        self._has_functions = False
        self._wrappers.restore_all()

    def remove_wrappers(self) -> Callable[[], None]:
        """Remove all wrappers, and return a function that installs them again."""
        if not self._wrappers:
            return lambda: None
        install = self.install if self._has_functions else self.install_primitives
        self.remove()
        return install

    def add(self, patch: Patch) -> None:
        """Wrap one more function, now and at every start."""
        self._custom.append(patch)
        self._cached_wrappers.pop((id(patch.holder), patch.attribute), None)  # its records may have another name now
        if self._has_functions:
            self._replace(patch.holder, patch.attribute, functools.partial(self._wrap, patch))

    def drop(self, holder: Any, attribute: str) -> bool:
        """Stop wrapping a function that was added; return False if it was not added."""
        patches = [p for p in self._custom if p.holder is holder and p.attribute == attribute]
        for patch in patches:
            self._custom.remove(patch)
        if patches and self._has_functions:
            self.remove()
            self.install()
        return bool(patches)

    def set_primitives(self, cells: Iterable[Any]) -> None:
        """Record the primitives of these Cells alone, each under the attribute that holds it."""
        self._primitives = {
            id(primitive): (f"Primitive.{attribute}.{type(primitive).__name__}", primitive)
            for cell in cells
            for attribute, primitive in compat.list_primitives(cell).items()
        }

    def _replace(self, holder: Any, attribute: str, wrap: Callable[[Any], Any]) -> None:
        """Replace an attribute by its wrapper."""
        original = getattr(holder, attribute)
        wrapped, wrapper = self._cached_wrappers.get((id(holder), attribute), (None, None))
        if wrapped is not original:  # made only once: there are thousands, and each step installs them
            wrapper = wrap(original)
            self._cached_wrappers[id(holder), attribute] = original, wrapper
        self._wrappers.replace(holder, attribute, wrapper)

    # -- wrapping --------------------------------------------------------------------------

    def _wrap(self, patch: Patch, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of a function that records its calls."""
        threads = self._threads
        name, in_place = patch.name, patch.in_place
        inner = threads.outermost(original)

        def record_call(*args: Any, **kwargs: Any) -> Any:
            calls = self.calls
            if calls is None or threads.inside or not calls.session.active:
                return original(*args, **kwargs)
            return calls.record(name, inner, args, kwargs, stack_of(sys._getframe(1)), in_place)

        return _copy_name(record_call, original)

    def _wrap_primitive(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of a primitive's ``__call__`` that records its calls."""
        threads, draws = self._threads, self._draws

        def run(primitive: Any, *args: Any, **kwargs: Any) -> Any:
            if type(primitive).__call__ is record_call:  # its class may call that of its base
                draws.note(primitive, args)
            return original(primitive, *args, **kwargs)

        def record_call(primitive: Any, *args: Any, **kwargs: Any) -> Any:
            calls = self.calls
            name = self._find_name(primitive) if not threads.inside else None
            if calls is None or name is None or not calls.session.active:
                return run(primitive, *args, **kwargs)
            inner = threads.outermost(functools.partial(run, primitive))
            in_place = compat.overwrites_arguments(primitive)
            return calls.record(name, inner, args, kwargs, stack_of(sys._getframe(1)), in_place)

        return _copy_name(record_call, original)

    def _find_name(self, primitive: Any) -> str | None:
        """Return the name of a primitive's records; None if it is not recorded."""
        if self._primitives is None:
            return f"Primitive.{compat.get_primitive_name(primitive)}.{type(primitive).__name__}"
        return self._primitives.get(id(primitive), (None, None))[0]


def _copy_name(recorded: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Give a wrapper the name of its function; but no ``__wrapped__``, which compilers follow."""
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(original, attribute, None)
        if isinstance(value, str):
            setattr(recorded, attribute, value)
    setattr(recorded, compat.ORIGINAL_ATTRIBUTE, original)
    return recorded


@functools.cache
def list_patches() -> tuple[Patch, ...]:
    """Return all functions and methods to wrap in this MindSpore, by the rules in ``families.yaml``."""
    rules = yaml.safe_load((files("probe_mindspore.capture") / "families.yaml").read_text("utf-8"))
    patches: dict[tuple[int, str], Patch] = {}
    for prefix, module, path in rules["families"]:
        for patch in _iterate_functions(rules, prefix, module, path):
            patches.setdefault((id(patch.holder), patch.attribute), patch)
    for patch in _iterate_copies(rules, [*patches.values()]):
        patches.setdefault((id(patch.holder), patch.attribute), patch)
    return (*patches.values(), *_iterate_methods(rules))


def _iterate_functions(rules: Any, prefix: str, module: str, path: str) -> Iterator[Patch]:
    """Yield the functions of one family; see ``families.yaml``."""
    try:
        holder = importlib.import_module(module)
    except ImportError:  # this MindSpore has no such module
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


def _iterate_copies(rules: Any, functions: Iterable[Patch]) -> Iterator[Patch]:
    """Yield the same functions in modules of layers, where they may have other names."""
    names: dict[int, str] = {}
    for patch in sorted(functions, key=lambda p: p.attribute not in getattr(p.holder, "__all__", ())):
        names.setdefault(id(getattr(patch.holder, patch.attribute)), patch.name)
    for module in _iterate_modules(rules):
        for attribute, function in vars(module).items():
            if isinstance(function, FunctionType) and id(function) in names:
                name = names[id(function)]
                yield Patch(module, attribute, name, name.endswith("_"))


def _iterate_modules(rules: Any) -> Iterator[ModuleType]:
    """Yield the modules of layers, and those that define operators."""
    for package in map(importlib.import_module, rules["layers"]):
        yield package
        for part in pkgutil.iter_modules(package.__path__):
            yield importlib.import_module(f"{package.__name__}.{part.name}")
    for name in rules["operators"]:
        try:
            yield importlib.import_module(name)
        except ImportError:  # this MindSpore has no such module
            continue


def _iterate_methods(rules: Any) -> Iterator[Patch]:
    """Yield the methods and operators of tensors."""
    left_out = frozenset(rules["not_recorded"]["Tensor"])
    public = (name for name in dir(Tensor) if not name.startswith("_") and name not in left_out)
    for name in (*public, *rules["tensor_operators"]):
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        for kind in compat.TENSORS:
            if isinstance(getattr(kind, name, None), _METHOD_TYPES) and not isinstance(
                vars(kind).get(name), (staticmethod, classmethod)
            ):
                yield Patch(kind, name, f"Tensor.{name}", in_place or name.startswith("__i"))
