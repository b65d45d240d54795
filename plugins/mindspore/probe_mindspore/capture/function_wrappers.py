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
from probe_recording.api import stack_of
from probe_recording.capture.attribute_patches import AttributePatches
from probe_recording.capture.threads import Threads

from probe_mindspore import compat
from probe_mindspore.capture.call_recorder import MindSporeCallRecorder
from probe_mindspore.capture.draws import DrawWatch

_METHOD_TYPES = (FunctionType, type(str.join), type(object.__repr__))


class Patch(NamedTuple):
    """A function to wrap.

    Attributes:
        holder: The module or class that has the function as an attribute.
        attribute: The name of this attribute.
        name: The name of the records of the function, without the call number.
        in_place: True if the function writes to its first argument.
    """

    holder: Any
    attribute: str
    name: str
    in_place: bool = False


class FunctionWrappers:
    """Wrappers around functions, methods and primitives.

    Args:
        threads: State of the recorder in each thread.
        draws: The watcher that is notified of each call of a primitive, even if the call is not recorded.

    Attributes:
        recorder: The recorder of the calls; None to record nothing.
    """

    def __init__(self, threads: Threads, draws: DrawWatch) -> None:
        self.recorder: MindSporeCallRecorder | None = None
        self._threads = threads
        self._draws = draws
        self._are_functions_wrapped = False
        self._custom: list[Patch] = []
        self._wrappers = AttributePatches()
        self._cached_wrappers: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._primitives: dict[int, tuple[str, Any]] | None = None

    # -- installing ------------------------------------------------------------------------

    def install(self) -> None:
        """Install the wrappers of all functions, methods and primitives, unless they are installed."""
        if self._wrappers:
            return
        self._are_functions_wrapped = True
        for patch in (*list_patches(), *self._custom):
            self._replace(patch.holder, patch.attribute, functools.partial(self._wrap, patch))
        self.install_primitives()

    def install_primitives(self) -> None:
        """Install only the wrappers of primitives, to observe which primitives draw random numbers."""
        for primitive_class in compat.list_primitive_classes():
            self._replace(primitive_class, "__call__", self._wrap_primitive)

    def remove(self) -> None:
        """Remove the wrappers, except wrappers that another package has replaced since their installation."""
        self._are_functions_wrapped = False
        self._wrappers.restore_all()

    def suspend(self) -> Callable[[], None]:
        """Remove all wrappers, and return a function that installs them again."""
        if not self._wrappers:
            return lambda: None
        install = self.install if self._are_functions_wrapped else self.install_primitives
        self.remove()
        return install

    def add(self, patch: Patch) -> None:
        """Add a function to wrap: immediately if functions are wrapped, and at each later ``install``."""
        self._custom.append(patch)
        self._cached_wrappers.pop((id(patch.holder), patch.attribute), None)  # its records may have another name now
        if self._are_functions_wrapped:
            self._replace(patch.holder, patch.attribute, functools.partial(self._wrap, patch))

    def drop(self, holder: Any, attribute: str) -> bool:
        """Stop wrapping a function that was added; return False if it was not added."""
        patches = [p for p in self._custom if p.holder is holder and p.attribute == attribute]
        for patch in patches:
            self._custom.remove(patch)
        if patches and self._are_functions_wrapped:
            self.remove()
            self.install()
        return bool(patches)

    def set_primitives(self, cells: Iterable[Any]) -> None:
        """Record only the primitives of these Cells, each under the name of its attribute in the Cell."""
        self._primitives = {
            id(primitive): (f"Primitive.{attribute}.{type(primitive).__name__}", primitive)
            for cell in cells
            for attribute, primitive in compat.list_primitives(cell).items()
        }

    def _replace(self, holder: Any, attribute: str, wrap: Callable[[Any], Any]) -> None:
        """Replace an attribute by its wrapper."""
        original = getattr(holder, attribute)
        cached_original, wrapper = self._cached_wrappers.get((id(holder), attribute), (None, None))
        if cached_original is not original:  # wrappers are cached, because each step installs thousands of them
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
            recorder = self.recorder
            if recorder is None or threads.inside or not recorder.session.active:
                return original(*args, **kwargs)
            return recorder.record(name, inner, args, kwargs, stack_of(sys._getframe(1)), in_place)

        return _copy_name(record_call, original)

    def _wrap_primitive(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of a primitive's ``__call__`` that records its calls."""
        threads, draws = self._threads, self._draws

        def run(primitive: Any, *args: Any, **kwargs: Any) -> Any:
            if type(primitive).__call__ is record_call:  # a call of a base class's __call__ is not noted again
                draws.note(primitive, args)
            return original(primitive, *args, **kwargs)

        def record_call(primitive: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = self.recorder
            name = self._find_name(primitive) if not threads.inside else None
            if recorder is None or name is None or not recorder.session.active:
                return run(primitive, *args, **kwargs)
            inner = threads.outermost(functools.partial(run, primitive))
            in_place = compat.overwrites_arguments(primitive)
            return recorder.record(name, inner, args, kwargs, stack_of(sys._getframe(1)), in_place)

        return _copy_name(record_call, original)

    def _find_name(self, primitive: Any) -> str | None:
        """Return the name of a primitive's records; None if it is not recorded."""
        if self._primitives is None:
            return f"Primitive.{compat.get_primitive_name(primitive)}.{type(primitive).__name__}"
        return self._primitives.get(id(primitive), (None, None))[0]


def _copy_name(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Copy the name and docstring of a function to its wrapper, without ``__wrapped__``, which compilers follow."""
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(original, attribute, None)
        if isinstance(value, str):
            setattr(wrapper, attribute, value)
    setattr(wrapper, compat.ORIGINAL_ATTRIBUTE, original)
    return wrapper


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
    holder = _import_if_present(module)
    if holder is None:
        return
    excluded_names = frozenset(rules["not_recorded"][prefix])
    exported = frozenset(getattr(holder, "__all__", ()))
    for name in sorted(exported) if prefix in rules["exported_alone"] else dir(holder):
        function = getattr(holder, name, None)
        if not isinstance(function, FunctionType) or name in excluded_names or name.startswith("_"):
            continue
        is_operator = function.__module__.startswith(tuple(rules["operators"]))
        if is_operator or function.__module__ == module or (name in exported and prefix != "Functional"):
            yield Patch(holder, name, f"{prefix}.{path}{name}", name.endswith("_"))


def _iterate_copies(rules: Any, functions: Iterable[Patch]) -> Iterator[Patch]:
    """Yield patches of the same functions in modules of layers, where the functions may have other names."""
    names: dict[int, str] = {}
    for patch in sorted(functions, key=lambda p: p.attribute not in getattr(p.holder, "__all__", ())):
        names.setdefault(id(getattr(patch.holder, patch.attribute)), patch.name)
    for module in _iterate_modules(rules):
        for attribute, function in vars(module).items():
            if isinstance(function, FunctionType) and id(function) in names:
                name = names[id(function)]
                yield Patch(module, attribute, name, name.endswith("_"))


def _iterate_modules(rules: Any) -> Iterator[ModuleType]:
    """Yield the modules of layers and the modules that define operators."""
    for package in map(importlib.import_module, rules["layers"]):
        yield package
        for part in pkgutil.iter_modules(package.__path__):
            yield importlib.import_module(f"{package.__name__}.{part.name}")
    for name in rules["operators"]:
        module = _import_if_present(name)
        if module is not None:
            yield module


def _import_if_present(name: str) -> ModuleType | None:
    """Import a module; return None if this version of MindSpore does not have it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _iterate_methods(rules: Any) -> Iterator[Patch]:
    """Yield the methods and operators of tensors."""
    excluded_names = frozenset(rules["not_recorded"]["Tensor"])
    public = (name for name in dir(Tensor) if not name.startswith("_") and name not in excluded_names)
    for name in (*public, *rules["tensor_operators"]):
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        for tensor_class in compat.TENSORS:
            if isinstance(getattr(tensor_class, name, None), _METHOD_TYPES) and not isinstance(
                vars(tensor_class).get(name), (staticmethod, classmethod)
            ):
                yield Patch(tensor_class, name, f"Tensor.{name}", in_place or name.startswith("__i"))
