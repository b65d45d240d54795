"""Judges, which may change a verdict after the policy; one a file."""
