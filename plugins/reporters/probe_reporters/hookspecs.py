"""The hooks of probe-reporters: marks of rows, texts of reasons, and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from probe_core.model import Advice
    from probe_core.model.report import Report
    from probe_reporters.messages import Text
    from probe_reporters.specs import HighlightSpec

KINDS = {"highlighters": "probe_reporters.specs:HighlightSpec"}


@hookspec
def probe_highlighters() -> list[HighlightSpec]:  # type: ignore[empty-body]
    """Return highlighters, which mark rows of an op. Called for a comparison with ``-hl``.

    Example::

        return [HighlightSpec(name="mine", summary="marks what jumps", metrics=("cosine",),
                              factory="my_package.marks:Marks")]
    """


@hookspec
def probe_reasons() -> Mapping[str, Text]:  # type: ignore[empty-body]
    """Return the texts of a plugin's reason codes. Called before the first table is made.

    Example::

        return {"my_reason": Text("Values are not finite.", rank=50)}
    """


@hookspec
def probe_advise(report: Report) -> Advice | None:
    """Return advice on a finished comparison. Called once per comparison, unless ``-c`` turns it off.

    Example::

        return Advice(line="12", node="Functional.exp.0.forward.output.0", text="Look at exp.")
    """
