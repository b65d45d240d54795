"""Damaged copies of recorded runs, each compared and judged; ``tests/mutate_dumps.py`` is the script."""
