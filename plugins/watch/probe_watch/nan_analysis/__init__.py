"""Search for the first value that is not finite, over all ranks of one run (docs/nan-analyze.md)."""
