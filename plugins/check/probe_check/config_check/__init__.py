"""The configurations of two trainings, collected into packs and compared (docs/config-check.md)."""
