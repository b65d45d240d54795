"""probe for PyTorch: reads recorded runs without importing torch."""

from probe_pytorch.compare import compare

__all__ = ["compare"]
