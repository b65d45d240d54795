"""The hook of probe-reporters, for marks of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookspec

if TYPE_CHECKING:
    from probe_reporters.specs import HighlightSpec

KINDS = {"highlighters": "probe_reporters.specs:HighlightSpec"}


@hookspec
def probe_highlighters() -> list[HighlightSpec]:  # type: ignore[empty-body]
    """Return highlighters, which mark rows of an op. Called when highlighting is asked for.

    Example::

        return [HighlightSpec(name="mine", summary="marks what jumps", metrics=("cosine",),
                              factory="my_package.marks:Marks")]
    """
