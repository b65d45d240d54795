"""``compare`` of torch_npu.hooks.tools, for scripts that import it from there (docs/legacy.md)."""

from probe_legacy.hooks import compare

__all__ = ["compare"]
