"""Types of options, and options that several commands have."""

from __future__ import annotations

import math
from typing import Any

import click

from probe_core.errors import UserError
from probe_core.terminal.spelling import option
from probe_precheck.releases import RELEASES, resolve_release
from probe_precheck.runner_options import SEED
from probe_precheck.settings import TIMEOUT


class ReleaseChoice(click.Choice):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.2 on
    """Choice of a release of msprobe, one of ``RELEASES``; former names are accepted and not listed."""

    def __init__(self) -> None:
        super().__init__(RELEASES)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the present name of the release that the command line names."""
        return super().convert(resolve_release(value), param, ctx)


class TimeLimit(click.FloatRange):
    """A positive number of seconds."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number of seconds that the command line states."""
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            raise UserError('"nan" is not a valid time for --timeout.', "Give seconds, such as 600.")
        return seconds


framework_option = option("--framework", help="Framework of the run, such as pytorch; detected if not given.")
only_option = option("--only", multiple=True, metavar="NAME",
    help="Run only this call, or the calls of this API; may be repeated.")  # fmt: skip
timeout_option = option("--timeout", type=TimeLimit(), metavar="SECONDS", default=TIMEOUT, show_default=True,
    help="Time limit of one call.")  # fmt: skip
seed_option = option("--seed", type=int, default=SEED, show_default=True, help="Seed of random inputs.")
