"""Judges, which may change a verdict after the policy; each is a file of its own."""
