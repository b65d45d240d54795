"""Pre-check of recorded runs: every API call is run alone and compared with a high-precision reference.

Plugins of other projects import the names of ``probe_precheck.api``, and nothing else of this package: its modules
may change between releases.
"""
