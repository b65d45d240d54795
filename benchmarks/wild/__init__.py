"""Benchmark of faults planted in public repositories: ``python3 make.py bench wild``.

``PROBE_WILD`` names a directory of checkouts, each called ``OWNER+NAME``. Stored here are only commands and
patches: one directory per repository with ``wild.yaml``, ``base.patch`` (a small reproducible run on a CPU),
for some ``debugger.patch`` (the lines that a user of the debugger adds), and a patch for each case.

The kinds of cases are ``fault``, ``equal`` (the same bits) and ``rounding`` (differences by rounding only).
The half called ``frozen`` was written without knowledge of the diagnosis and scored once.
"""
