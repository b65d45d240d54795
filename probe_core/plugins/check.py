"""Make whatever the installed plugins offer, and note what cannot be made or has a name that is taken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from probe_core.errors import UserError, said
from probe_core.plugins.blame import PluginError, what_to_do
from probe_core.plugins.manager import Manager, singular
from probe_core.plugins.specs import Spec, address


@dataclass(frozen=True, slots=True)
class Failure:
    """A plugin or a contribution that cannot be used.

    Attributes:
        kind: The kind of the contribution, such as ``metrics``; ``plugins`` for a whole plugin.
        name: What it is asked for by.
        origins: The distributions that give it: several where they conflict.
        problem: A sentence.
        fix: What to do about it.
    """

    kind: str
    name: str
    origins: tuple[str, ...]
    problem: str
    fix: str


@dataclass(frozen=True, slots=True)
class Check:
    """What came of a check: how many contributions could be made, what fails, names given twice."""

    made: int
    failed: tuple[Failure, ...]
    conflicts: tuple[Failure, ...]


def check(manager: Manager) -> Check:
    """Call the factory of every contribution; commands and recorders are imported and not called."""
    made = 0
    failed: list[Failure] = []
    conflicts: list[Failure] = []
    for kind in manager.kinds:
        specs = [item.spec for item in manager.contributions(kind)]
        for spec in specs:
            failure = _failure(kind, spec)
            if failure is None:
                made += 1
            else:
                failed.append(failure)
        for name in (name for name, count in Counter(spec.name for spec in specs).items() if count > 1):
            origins = tuple(str(spec.origin) for spec in specs if spec.name == name)
            problem = f'The {singular(kind)} "{name}" is given by {" and ".join(origins)}.'
            conflicts.append(Failure(kind, name, origins, problem, "Uninstall all but one of them."))
    left_out = [
        Failure("plugins", one.name, (str(one.origin),), f"{one.origin} is left out: {one.problem}.", one.fix)
        for one in manager.plugins.values()
        if one.problem
    ]
    return Check(made, (*left_out, *failed), tuple(conflicts))


def _failure(kind: str, spec: Spec) -> Failure | None:
    """Why a contribution cannot be made; None where it can."""
    try:
        spec.make()
        if ahead := getattr(spec, "ahead", ""):
            address(ahead)
        return None
    except KeyboardInterrupt:
        raise
    except PluginError as error:
        problem, fix = error.what, error.fix
    except UserError as error:
        problem, fix = f"{spec.title} of {spec.origin}: {error.what}", error.fix
    except BaseException as error:  # whatever a factory raises, SystemExit too, is its own failure
        problem = f"{spec.title} of {spec.origin} failed: {said(error)}."
        fix = what_to_do(spec.origin.distribution)
    return Failure(kind, spec.name, (str(spec.origin),), problem, fix)
