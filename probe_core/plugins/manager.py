"""Loading of plugins, and look-up of their contributions.

A plugin that cannot be loaded causes a warning that names it and its fix, and never stops the command. Two
contributions of the same name are an error only if that name is used.

Plugins that others extend (kits) declare hooks of their own: entry points in the group ``probe.hookspecs``
name modules with hookspecs and ``KINDS``, which maps each kind to the class of its specs or its address.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from types import FunctionType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from probe_core import __version__
from probe_core.errors import UserError, describe_error, suggest_name
from probe_core.plugins import builtins, hookspecs
from probe_core.plugins.blame import Origin, PluginError, describe_fix
from probe_core.plugins.distributions import PLUGINS_VARIABLE, create_missing_error, find_provider, provides
from probe_core.plugins.hookspecs import GROUP, HOOKSPECS
from probe_core.plugins.parameters import parse_parameters, split_parameters
from probe_core.plugins.specs import KINDS, ReaderSpec, Spec, find_spec_problem, import_address
from probe_core.store.files import DEFAULT_RECORD_FILES
from probe_core.store.frames import FRAMEWORK_FRAMES

if TYPE_CHECKING:
    from probe_core.store.layout import RecordFiles

T = TypeVar("T")
S = TypeVar("S", bound=Spec)

CORE_PLUGIN = "core"


class PluginWarning(UserWarning):
    """A warning that a plugin is left out, with the way to fix it."""


@dataclass(slots=True)
class Plugin:
    """An installed plugin, with its origin and the problem that keeps it from loading, if any."""

    name: str
    distribution: str
    version: str
    problem: str = ""
    fix: str = ""
    package: str = ""

    @property
    def origin(self) -> Origin:
        """The distribution and its version, for messages."""
        return Origin(self.distribution, self.version)


@dataclass(frozen=True, slots=True)
class Contribution:
    """A spec with the plugin that gave it."""

    spec: Spec
    plugin: Plugin


class Manager:
    """The plugins of this process, with all hooks that the core and kits declare.

    Args:
        entry_points: The plugins; None for the installed ones that ``PROBE_PLUGINS`` selects.
        kits: The modules with hookspecs; None for the installed ones.

    Attributes:
        kinds: The spec class of each kind of contribution, or its address until it is first used.
        hookspecs: The modules that declare hooks, the core's first.
    """

    def __init__(
        self,
        entry_points: Sequence[metadata.EntryPoint] | None = None,
        kits: Sequence[metadata.EntryPoint] | None = None,
    ) -> None:
        self._pluggy = pluggy.PluginManager(GROUP)
        self._pluggy.add_hookspecs(hookspecs)
        self.kinds: dict[str, type[Spec] | str] = dict(KINDS)
        self.hookspecs: list[ModuleType] = [hookspecs]
        self.plugins: dict[str, Plugin] = {}
        self._kits: dict[str, Plugin] = {}
        self._contributions: dict[str, list[Contribution]] = {}
        core = Plugin(CORE_PLUGIN, "probe-core", __version__)
        declared = dict.fromkeys(KINDS, core.origin)
        installed = metadata.entry_points()  # slow, reads the files of every distribution
        for point in _drop_duplicates(installed.select(group=HOOKSPECS) if kits is None else kits):
            self._declare(point, declared)
        self._lacks_hooks = bool(self.plugins)  # unknown hooks may be those of a broken kit
        self._add(core, lambda: builtins)
        for point in _select_entry_points(installed.select(group=GROUP) if entry_points is None else entry_points):
            self._add(_create_plugin(point), point.load)

    # -- loading -----------------------------------------------------------------------

    def _declare(self, point: metadata.EntryPoint, declared: dict[str, Origin]) -> None:
        """Add the hooks of a kit, or leave it out if broken; ``declared`` maps each kind to its origin."""
        kit = _create_plugin(point)
        kit.name = point.value
        with self._guard(kit):
            module = point.load()
            for kind, spec in module.KINDS.items():
                if kind in declared:
                    raise TypeError(f'its kind "{kind}" is declared by {declared[kind]} as well')
                if not (isinstance(spec, str) and ":" in spec):
                    _check_kind(kind, spec)
            self._pluggy.add_hookspecs(module)
            for kind in module.KINDS:
                if not hasattr(self._pluggy.hook, f"probe_{kind}"):
                    raise TypeError(f'its kind "{kind}" has no hookspec probe_{kind}')
            self.kinds.update(module.KINDS)
            self._kits.update(dict.fromkeys(module.KINDS, kit))
            declared.update(dict.fromkeys(module.KINDS, kit.origin))
            self.hookspecs.append(module)

    def _add(self, plugin: Plugin, load: Callable[[], Any]) -> None:
        if plugin.name in self.plugins:
            existing = self.plugins[plugin.name]
            plugin.name = f"{plugin.name} ({plugin.distribution})"
            self._leave_out(plugin, f"its name is taken by {existing.origin}", "Uninstall one of the two.")
            return
        self.plugins[plugin.name] = plugin
        with self._guard(plugin):
            module = load()
            self._pluggy.register(module, plugin.name)
            if not self._lacks_hooks:
                self._check_hooks(module)

    def _check_hooks(self, module: Any) -> None:
        """Raise TypeError for a hook with an unknown name or without ``@hookimpl``, which pluggy ignores."""
        hook_names = [name for name in vars(self._pluggy.hook) if name.startswith("probe_")]
        try:
            self._pluggy.check_pending()
        except pluggy.PluginValidationError as error:
            match = re.search(r"unknown hook '(\w+)'", str(error))
            close = suggest_name(match[1], hook_names) if match else None
            raise TypeError(f"{describe_error(error)}; did you mean {close}?") if close else error from None
        for name in hook_names:
            hook = getattr(module, name, None)
            if isinstance(hook, FunctionType) and not hasattr(hook, f"{GROUP}_impl"):
                raise TypeError(f"{name} is not marked with @hookimpl")

    @contextmanager
    def _guard(self, plugin: Plugin) -> Iterator[None]:
        """Leave out a plugin that raises an exception in the block."""
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin must not end the command, not even with SystemExit
            self._leave_out(plugin, describe_error(error))

    def merge_mappings(self, hook: str, check: Callable[[Any], Mapping[str, T]]) -> dict[str, T]:
        """Return the mappings of all plugins as one; of several values of a key, that of the first plugin is used.

        A plugin is left out if its hook, or ``check`` of its mapping, raises an exception.
        """
        merged: dict[str, T] = {}
        for plugin, implementation in self.find_implementations(hook):
            with self._guard(plugin):
                merged = {**check(implementation.function()), **merged}
        return merged

    def find_implementations(self, hook: str) -> list[tuple[Plugin, pluggy.HookImpl]]:
        """Return the plugins that implement a hook, each with its implementation; none if no kit declares the hook."""
        caller: pluggy.HookCaller | None = getattr(self._pluggy.hook, hook, None)
        implementations = caller.get_hookimpls() if caller else ()
        return [(self.plugins[implementation.plugin_name], implementation) for implementation in implementations]

    def _leave_out(self, plugin: Plugin, problem: str, fix: str = "") -> None:
        self.plugins[plugin.name] = plugin
        plugin.problem = problem
        plugin.fix = fix or f"{describe_fix(plugin.distribution)} {PLUGINS_VARIABLE} chooses the plugins to load."
        module = self._pluggy.get_plugin(plugin.name)
        if module is not None:
            self._pluggy.unregister(module)
        text = f"plugin {plugin.name} ({plugin.origin}) is left out: {problem}. {plugin.fix}"
        warnings.warn(text, PluginWarning, stacklevel=2)

    def contributions(self, kind: str) -> list[Contribution]:
        """Return all contributions of a kind (``metrics``, ``readers``, …), in the order of the plugins."""
        if kind not in self._contributions:
            self._contributions[kind] = self._collect(kind)
        return self._contributions[kind]

    def _find_spec_type(self, kind: str) -> type[Spec] | None:
        """Return the spec class of a kind; None if its kit is broken."""
        named = self.kinds.get(kind)
        if not isinstance(named, str):
            return named
        spec_type: type[Spec] | None = None
        with self._guard(self._kits[kind]):
            self.kinds[kind] = spec_type = _check_kind(kind, import_address(named))
        return spec_type

    def _collect(self, kind: str) -> list[Contribution]:
        spec_type = self._find_spec_type(kind)
        if spec_type is None:
            return []
        contributions: list[Contribution] = []
        for plugin, implementation in self.find_implementations(f"probe_{kind}"):
            with self._guard(plugin):
                returned: Any = implementation.function() or ()
                if not isinstance(returned, Iterable):
                    raise TypeError(f"probe_{kind} must return a list, not {type(returned).__name__}")
                specs = list(returned)
                for spec in specs:
                    if not isinstance(spec, spec_type):
                        raise TypeError(f"probe_{kind} must return {spec_type.__name__}, not {type(spec).__name__}")
                    if problem := find_spec_problem(spec):
                        raise TypeError(f"probe_{kind}: {problem}")
                contributions += [Contribution(replace(spec, origin=plugin.origin), plugin) for spec in specs]
                FRAMEWORK_FRAMES.update(*(s.framework_frames for s in specs if isinstance(s, ReaderSpec)))
        return contributions

    def specs(self, kind: str, as_type: type[S]) -> list[S]:
        """Return the specs of all contributions of a kind."""
        return [item.spec for item in self.contributions(kind) if isinstance(item.spec, as_type)]

    def make_first(self, kind: str, as_type: type[S]) -> Any:
        """Return what the first contribution of a kind makes; None if no plugin gives any."""
        specs = self.specs(kind, as_type)
        return specs[0].make() if specs else None

    def names(self, kind: str) -> list[str]:
        """Return the names of all contributions of a kind."""
        return list(dict.fromkeys(item.spec.name for item in self.contributions(kind)))

    def find(self, kind: str, name: str, as_type: type[S]) -> S:
        """Return the contribution called ``name``, which may include parameters: ``ulp:limit=4``.

        Raises:
            UserError: No plugin or several plugins give it, or a parameter is not valid.
        """
        name, texts = split_parameters(name)
        matches = [item for item in self.contributions(kind) if item.spec.name == name]
        if not matches:
            raise self.create_missing_error(kind, name)
        if len(matches) > 1:
            raise UserError(
                f'Several plugins provide a {format_kind(kind)} called "{name}".',
                f"Uninstall all but one, or name the plugins you want in {PLUGINS_VARIABLE}:",
                [str(item.plugin.origin) for item in matches],
            )
        spec = matches[0].spec
        assert isinstance(spec, as_type)
        return replace(spec, values=parse_parameters(spec.title, spec.parameters, texts)) if texts else spec

    def record_files(self) -> RecordFiles:
        """Return the names of the record files of all readers, those of the core's own format first."""
        files = (spec.record_files for spec in self.specs("readers", ReaderSpec))
        return tuple(dict.fromkeys((DEFAULT_RECORD_FILES, *files)))

    def create_missing_error(self, kind: str, name: str) -> UserError:
        """Return the error for a contribution that no plugin gives: a package to install, or valid names."""
        distribution = find_provider(kind, name)
        if distribution is not None:
            return create_missing_error(f'The {format_kind(kind)} "{name}"', distribution)
        names = self.names(kind)
        close = suggest_name(name, names) or next(
            (candidate for candidate in names if candidate.startswith(name)), None
        )
        fix = f"Did you mean {close}? Use one of these:" if close else "Use one of these:"
        return UserError(
            f'There is no {format_kind(kind)} called "{name}".',
            fix if names else "No installed plugin provides any; see probe plugins.",
            names,
        )

    def create_missing_option_error(self, command: str, name: str) -> UserError | None:
        """Return the error for an option of probe's own whose plugin is not loaded; None for another one.

        Args:
            command: The name of the command.
            name: A spelling of the option on the command line, or its name in Python.
        """
        dashed = name if name.startswith("-") else f"--{name}"
        spellings = (f"{command.replace('_', '-')} {text}" for text in (name, dashed.replace("_", "-")))
        distribution = next(filter(None, (find_provider("flags", text) for text in spellings)), None)
        if distribution is None or distribution in {plugin.distribution for plugin in self.plugins.values()}:
            return None
        return create_missing_error(f'The option "{name}"', distribution)

    def notify(self, hook: str, returns: type[object] | None = None, **arguments: Any) -> list[Any]:
        """Call a hook on every plugin and return the results that are not None; exceptions become warnings.

        Args:
            hook: The name of the hook.
            returns: The type that results must have; None for any.
            arguments: The arguments of the hook.
        """
        results = []
        for plugin, implementation in self.find_implementations(hook):
            passed = {name: arguments[name] for name in implementation.argnames}
            try:
                results.append(_check_result(implementation.function(**passed), returns))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # as in _guard
                what = f"{hook} of {plugin.origin} failed: {describe_error(error)}."
                warn(PluginError(what, describe_fix(plugin.distribution)), "The comparison goes on without it.")
        return [result for result in results if result is not None]

    def find_failing_plugin(self, trace: TracebackType | None) -> Plugin | None:
        """Return the third-party plugin whose code a traceback runs through; None if there is none."""
        third_party = {item.package: item for item in self.plugins.values() if not item.origin.is_of_probe}
        while trace is not None:
            package = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
            if package in third_party:
                return third_party[package]
            trace = trace.tb_next
        return None


def _check_kind(kind: str, spec: Any) -> type[Spec]:
    if not (isinstance(spec, type) and issubclass(spec, Spec)):
        raise TypeError(f'its kind "{kind}" must be a subclass of Spec, not {spec!r:.80}')
    return spec


def warn(error: PluginError, effect: str) -> None:
    """Warn that a plugin failed while the work continues; ``effect`` is the effect on the result."""
    warnings.warn(f"{error.what} {effect} {error.fix}", PluginWarning, stacklevel=3)


def _check_result(result: T, kind: type[object] | None) -> T:
    if result is not None and kind is not None and not isinstance(result, kind):
        raise TypeError(f"must return {kind.__name__}, not {type(result).__name__}")
    return result


def _create_plugin(point: metadata.EntryPoint) -> Plugin:
    """Return the plugin of an entry point; the version is empty if the distribution is damaged."""
    name, version = point.name, ""
    if point.dist is not None:
        with suppress(Exception):
            fields = point.dist.metadata  # parsed on each access
            name, version = fields["Name"] or name, fields["Version"] or ""
    return Plugin(point.name, name, version, package=point.value.partition(":")[0].partition(".")[0].strip())


def format_kind(kind: str) -> str:
    """Return the singular of a kind in messages: ``policy`` for ``policies``, ``format`` for reporters."""
    return {"policies": "policy", "reporters": "format"}.get(kind, kind[:-1]).replace("_", " ")


def _drop_duplicates(points: Sequence[metadata.EntryPoint] | metadata.EntryPoints) -> list[metadata.EntryPoint]:
    """Return the entry points by name, without the duplicates of a distribution that is on the path twice."""
    unique = {(point.name, point.value): point for point in points}
    return [unique[key] for key in sorted(unique)]  # a directory lists distributions in any order


def _select_entry_points(points: Sequence[metadata.EntryPoint] | metadata.EntryPoints) -> list[metadata.EntryPoint]:
    unique = _drop_duplicates(points)
    only = os.environ.get(PLUGINS_VARIABLE)
    if only is None:
        return unique
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name != CORE_PLUGIN and name not in {point.name for point in unique}:
            close = [point.name for point in unique if _create_plugin(point).distribution == name]
            text = f"Did you mean {close[0]}, the plugin of the distribution {name}? " if close else ""
            text += f"Installed: {', '.join(sorted(point.name for point in unique)) or 'none'}."
            text = f"{PLUGINS_VARIABLE} names {name}, and no installed plugin has that name. {text}"
            warnings.warn(text, PluginWarning, stacklevel=2)
    chosen = [point for point in unique if point.name in names]
    # comparisons of several ranks need a scheduler, even if the user does not select its plugin
    schedulers = [p for p in unique if p.name not in names and provides(_create_plugin(p).distribution, "schedulers")]
    return chosen + schedulers if any(point.name != CORE_PLUGIN for point in chosen) else chosen
