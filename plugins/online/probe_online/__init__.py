"""Receiver of the online pre-check: calls of a training are judged while it runs (docs/online.md)."""
