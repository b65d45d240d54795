"""The pre-check: every recorded API is run alone and held against a high-precision reference."""
