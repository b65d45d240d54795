"""Loads plugins one by one, each in its own guard, and remembers where each contribution came from.

A plugin that cannot be loaded costs a warning that names it and the way to mend it, never the
command. Two contributions of one name are an error only when that name is used.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, TypeVar

import pluggy

from probe_core import builtins, hookspecs
from probe_core.distributions import missing, provider
from probe_core.errors import UserError
from probe_core.hookspecs import GROUP
from probe_core.specs import (
    CommandSpec,
    DumperSpec,
    ExecutorSpec,
    HighlightSpec,
    MatcherSpec,
    MetricSpec,
    NameRule,
    PolicySpec,
    ReaderSpec,
    ReferenceSpec,
    ReporterSpec,
    RunnerSpec,
    Spec,
    StandardSpec,
    StatusRuleSpec,
)

S = TypeVar("S", bound=Spec)

ONLY = "PROBE_PLUGINS"
CORE = "core"

KINDS: dict[str, type[Spec]] = {
    "readers": ReaderSpec,
    "matchers": MatcherSpec,
    "metrics": MetricSpec,
    "policies": PolicySpec,
    "highlighters": HighlightSpec,
    "reporters": ReporterSpec,
    "commands": CommandSpec,
    "dumpers": DumperSpec,
    "name_rules": NameRule,
    "references": ReferenceSpec,
    "runners": RunnerSpec,
    "status_rules": StatusRuleSpec,
    "standards": StandardSpec,
    "executors": ExecutorSpec,
}


class PluginWarning(UserWarning):
    """A plugin that is left out, and how to mend it."""


@dataclass(slots=True)
class Plugin:
    """One installed plugin: where it comes from and what became of it."""

    name: str
    distribution: str
    version: str
    problem: str = ""
    fix: str = ""

    @property
    def origin(self) -> str:
        """Distribution and version, for messages."""
        return f"{self.distribution} {self.version}".strip()


@dataclass(frozen=True, slots=True)
class Contribution:
    """A spec and the plugin that gave it."""

    spec: Spec
    plugin: Plugin


class Manager:
    """The plugins of this process."""

    def __init__(self, entry_points: Sequence[metadata.EntryPoint] | None = None) -> None:
        self._pluggy = pluggy.PluginManager(GROUP)
        self._pluggy.add_hookspecs(hookspecs)
        self.plugins: dict[str, Plugin] = {}
        self._contributions: dict[str, list[Contribution]] = {}
        self._add(Plugin(CORE, "probe-core", _version("probe-core")), lambda: builtins)
        for point in _wanted(metadata.entry_points(group=GROUP) if entry_points is None else entry_points):
            distribution = point.dist
            self._add(
                Plugin(
                    point.name,
                    distribution.name if distribution else point.name,
                    distribution.version if distribution else "",
                ),
                point.load,
            )

    # -- loading -----------------------------------------------------------------------

    def _add(self, plugin: Plugin, load: Callable[[], Any]) -> None:
        if plugin.name in self.plugins:
            other = self.plugins[plugin.name]
            plugin.name = f"{plugin.name} ({plugin.distribution})"
            self.plugins[plugin.name] = plugin
            self._leave_out(plugin, f"its name is taken by {other.origin}", "Uninstall one of the two.")
            return
        self.plugins[plugin.name] = plugin
        try:
            self._pluggy.register(load(), plugin.name)
            self._pluggy.check_pending()  # a hook name mistyped would be silent otherwise
        except Exception as error:  # whatever a stranger's module raises must not end the command
            self._leave_out(plugin, _brief(error))

    def _leave_out(self, plugin: Plugin, problem: str, fix: str = "") -> None:
        plugin.problem = problem
        plugin.fix = fix or (
            f"Update or uninstall {plugin.distribution}, or name the plugins you want in {ONLY}."
        )
        module = self._pluggy.get_plugin(plugin.name)
        if module is not None:
            self._pluggy.unregister(module)
        warnings.warn(
            f"plugin {plugin.name} ({plugin.origin}) is left out: {problem}. {plugin.fix}",
            PluginWarning,
            stacklevel=2,
        )

    # -- asking ------------------------------------------------------------------------

    def contributions(self, kind: str) -> list[Contribution]:
        """All contributions of a kind (``metrics``, ``readers``, …), in the order of the plugins."""
        if kind not in self._contributions:
            self._contributions[kind] = self._collect(kind)
        return self._contributions[kind]

    def _collect(self, kind: str) -> list[Contribution]:
        found: list[Contribution] = []
        caller: pluggy.HookCaller = getattr(self._pluggy.hook, f"probe_{kind}")
        for implementation in caller.get_hookimpls():
            plugin = self.plugins[implementation.plugin_name]
            try:
                specs: list[Any] = list(_call(implementation))
                for spec in specs:
                    if not isinstance(spec, KINDS[kind]):
                        raise TypeError(
                            f"probe_{kind} must return {KINDS[kind].__name__}, not {type(spec).__name__}"
                        )
            except Exception as error:  # see _add
                self._leave_out(plugin, _brief(error))
                continue
            found += [Contribution(spec, plugin) for spec in specs]
        return found

    def names(self, kind: str) -> list[str]:
        """The names that can be asked for."""
        return list(dict.fromkeys(item.spec.name for item in self.contributions(kind)))

    def find(self, kind: str, name: str, as_type: type[S]) -> S:
        """The one contribution called ``name``.

        Raises:
            UserError: None of that name, or several.
        """
        found = [item for item in self.contributions(kind) if item.spec.name == name]
        if not found:
            raise self.missing(kind, name)
        if len(found) > 1:
            raise UserError(
                f'Several plugins give a {singular(kind)} called "{name}".',
                f"Uninstall all but one, or name the plugins you want in {ONLY}:",
                [item.plugin.origin for item in found],
            )
        spec = found[0].spec
        assert isinstance(spec, as_type)
        return spec

    def missing(self, kind: str, name: str) -> UserError:
        """Return the error for a contribution that no plugin gives: what to install, or what there is."""
        known = provider(kind, name)
        if known is not None:
            return missing(f'The {singular(kind)} "{name}"', known, ONLY)
        names = self.names(kind)
        return UserError(
            f'There is no {singular(kind)} called "{name}".',
            "Use one of these:" if names else "No plugin that is installed gives any; see probe plugins.",
            names,
        )

    def notify(self, hook: str, **arguments: Any) -> list[Any]:
        """Call an observing hook on every plugin; what one raises becomes a warning."""
        answers = []
        caller: pluggy.HookCaller = getattr(self._pluggy.hook, hook)
        for implementation in caller.get_hookimpls():
            wanted = {name: arguments[name] for name in implementation.argnames}
            try:
                answers.append(implementation.function(**wanted))
            except Exception as error:  # see _add
                origin = self.plugins[implementation.plugin_name].origin
                warnings.warn(f"{hook} of {origin} failed: {_brief(error)}", PluginWarning, stacklevel=2)
        return [answer for answer in answers if answer is not None]


def singular(kind: str) -> str:
    """Return the word for one contribution of a kind: ``policy`` of ``policies``."""
    return ("policy" if kind == "policies" else kind[:-1]).replace("_", " ")


def _call(implementation: pluggy.HookImpl) -> Iterable[Any]:
    """What a registration hook returns; its arguments, if any, ask for everything."""
    answer: Any = implementation.function(*[None] * len(implementation.argnames))
    return answer or ()


def _wanted(points: Sequence[metadata.EntryPoint] | metadata.EntryPoints) -> list[metadata.EntryPoint]:
    unique = list({(point.name, point.value): point for point in points}.values())
    only = os.environ.get(ONLY)
    if only is None:
        return unique
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name != CORE and name not in {point.name for point in unique}:
            warnings.warn(
                f"{ONLY} names {name}, which is not installed. "
                f"Installed: {', '.join(sorted(point.name for point in unique)) or 'none'}.",
                PluginWarning,
                stacklevel=2,
            )
    return [point for point in unique if point.name in names]


def _brief(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        from probe_core import __version__

        return __version__
