"""Output formats of probe (xlsx, csv, jsonl, parquet), tables, names of result files, and the merging of results.

Plugins of other distributions import the names of ``probe_reporters.api``, and nothing else of
this package: its modules may change between releases.
"""
