"""Captures of a running MindSpore program: API calls, Cells, and the gradients of both."""
