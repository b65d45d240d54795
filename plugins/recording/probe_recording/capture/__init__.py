"""Capture of calls: hooks and patches that pass calls to a session."""
