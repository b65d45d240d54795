"""Golden tests of models for pytest: the fixture ``probe_golden`` (docs/pytest.md).

pytest imports this package in every run, so nothing here imports torch or probe before the fixture is used.
"""
