"""Storing of recorded tensors: their bytes, checksums and files."""
