"""``from torch_npu.hooks.tools import compare``, with only the package's name changed."""

from __future__ import annotations


def test_hooks_tools_provides_compare() -> None:
    from probe_legacy.hooks import compare as direct
    from probe_legacy.hooks.tools import compare

    assert compare is direct
