"""Helpers of the tests, in packages by purpose, and the places of the checkout."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DATA = TESTS / "data"
