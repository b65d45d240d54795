"""A check of all installed plugins: makes and tries every contribution and collects the failures."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from importlib import metadata

from probe_check.plugin_check.trial import TrialError, TrialFault
from probe_check.plugin_check.trials import try_contribution, try_observers
from probe_core.errors import UserError, describe_error
from probe_core.plugins.blame import PluginError, describe_fix
from probe_core.plugins.manager import Manager, format_kind
from probe_core.plugins.specs import Spec, import_address


@dataclass(frozen=True, slots=True)
class ContributionFailure:
    """A plugin or a contribution that cannot be used.

    Attributes:
        kind: The kind of the contribution, such as ``metrics``; ``plugins`` for a whole plugin.
        name: The name of the contribution or plugin.
        origins: The distributions that give it; several if they conflict.
        problem: A sentence on what is wrong.
        fix: A sentence on how to fix it.
    """

    kind: str
    name: str
    origins: tuple[str, ...]
    problem: str
    fix: str


@dataclass(frozen=True, slots=True)
class PluginCheckResult:
    """The outcome of checking all plugins.

    Attributes:
        contribution_count: The number of contributions that could be made and that passed their trial.
        failed: Contributions that could not be made, or that failed in a comparison of a small pair of runs.
        lacking: Contributions that need a package that is not installed and that their distribution does not
            require, such as a framework.
        conflicts: Names that several plugins give.
    """

    contribution_count: int
    failed: tuple[ContributionFailure, ...]
    lacking: tuple[ContributionFailure, ...]
    conflicts: tuple[ContributionFailure, ...]


def check_plugins(manager: Manager) -> PluginCheckResult:
    """Make every contribution, and let it take part in comparisons of a small pair of runs.

    Commands print their help; recorders are imported but not called.
    """
    working_count = 0
    failed: list[ContributionFailure] = []
    lacking: list[ContributionFailure] = []
    conflicts: list[ContributionFailure] = []
    for kind in manager.kinds:
        specs = [item.spec for item in manager.contributions(kind)]
        for spec in specs:
            error = _find_exception(manager, kind, spec)
            package = _find_missing_package(error, spec)
            if error is None:
                working_count += 1
            elif package:
                problem = f"{spec.title} of {spec.origin} needs {package}, which is not installed."
                lacking.append(
                    ContributionFailure(kind, spec.name, (str(spec.origin),), problem, f"Install {package}.")
                )
            else:
                failed.append(_create_failure(kind, spec, error))
        for name in (name for name, count in Counter(spec.name for spec in specs).items() if count > 1):
            origins = tuple(str(spec.origin) for spec in specs if spec.name == name)
            problem = f'The {format_kind(kind)} "{name}" is given by {" and ".join(origins)}.'
            conflicts.append(ContributionFailure(kind, name, origins, problem, "Uninstall all but one of them."))
    left_out = [
        ContributionFailure(
            "plugins", item.name, (str(item.origin),), f"{item.origin} is left out: {item.problem}.", item.fix
        )
        for item in manager.plugins.values()
        if item.problem
    ]
    return PluginCheckResult(
        working_count, (*left_out, *failed, *_find_failed_observers(manager)), tuple(lacking), tuple(conflicts)
    )


def _find_failed_observers(manager: Manager) -> list[ContributionFailure]:
    """Return the hooks that raise an exception when they observe a comparison, each once."""
    failures: dict[tuple[str, str], ContributionFailure] = {}
    for hook, plugin, error in try_observers(manager):
        if error is not None:
            problem = f"{hook} of {plugin.origin} failed: {describe_error(error)}."
            failure = ContributionFailure(
                "hooks", hook, (str(plugin.origin),), problem, describe_fix(plugin.distribution)
            )
            failures.setdefault((hook, plugin.name), failure)
    return list(failures.values())


def _find_exception(manager: Manager, kind: str, spec: Spec) -> BaseException | None:
    """Return the exception of making or trying a contribution; None if it works."""
    try:
        spec.make()
        if ahead := getattr(spec, "ahead", ""):
            import_address(ahead)
        try_contribution(manager, kind, spec)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a factory may raise anything, even SystemExit
        return error
    return None


def _find_missing_package(error: BaseException | None, spec: Spec) -> str:
    """Return the missing package that the distribution does not require; empty for other errors."""
    cause = error.__cause__ if isinstance(error, UserError) else error
    if not isinstance(cause, ModuleNotFoundError) or not cause.name:
        return ""
    package = cause.name.partition(".")[0]
    factory_package = spec.factory.partition(".")[0] if isinstance(spec.factory, str) else ""
    try:
        required = metadata.requires(spec.origin.distribution) or []
    except (metadata.PackageNotFoundError, ValueError):
        required = []
    required = [name for name in required if "extra ==" not in name]
    is_required = any(re.match(rf"{re.escape(package)}(?![\w.-])", name) for name in required)
    return "" if package == factory_package or is_required else package


def _create_failure(kind: str, spec: Spec, error: BaseException) -> ContributionFailure:
    """Return the failure of a contribution, with the way to fix it."""
    if isinstance(error, PluginError):
        problem, fix = error.what, error.fix
    elif isinstance(error, UserError):
        problem, fix = f"{spec.title} of {spec.origin}: {error.what}", error.fix
    elif isinstance(error, TrialFault):
        problem, fix = str(error), describe_fix(spec.origin.distribution)
    elif isinstance(error, (TrialError, AssertionError)) and str(error):
        problem = f"{spec.title} of {spec.origin} failed: {str(error).rstrip('.')}."
        fix = describe_fix(spec.origin.distribution)
    else:
        problem = f"{spec.title} of {spec.origin} failed: {describe_error(error)}."
        fix = describe_fix(spec.origin.distribution)
    return ContributionFailure(kind, spec.name, (str(spec.origin),), problem, fix)
