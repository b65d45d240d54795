"""Nets, recordings and calls for the tests that run MindSpore."""
