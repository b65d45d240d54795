"""Type of the option ``--standard``."""

from __future__ import annotations

from typing import Any

import click

from probe_precheck.releases import RELEASES, resolve_release


class ReleaseChoice(click.Choice):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.2 on
    """Choice of a release of msprobe, one of ``RELEASES``; former names are accepted and not listed."""

    def __init__(self) -> None:
        super().__init__(RELEASES)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the present name of the release that the command line names."""
        return super().convert(resolve_release(value), param, ctx)
