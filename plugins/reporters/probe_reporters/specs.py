"""The spec of this kit's hook."""

from __future__ import annotations

from probe_core.plugins.specs import PolicySpec


class HighlightSpec(PolicySpec):
    """A highlighter, which marks rows of an op (makes a ``probe_reporters.api.Highlighter``)."""

    __slots__ = ()

    @property
    def title(self) -> str:
        """The name in messages, such as ``The highlighter "mine"``."""
        return f'The highlighter "{self.name}"'
