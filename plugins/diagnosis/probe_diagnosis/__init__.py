"""Diagnosis: the first difference of two runs over their ranks, judges, suspects, collectives."""
