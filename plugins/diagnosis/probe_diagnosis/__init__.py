"""Diagnosis of two runs: judges, suspects, the first difference over all ranks, checks of collectives."""
