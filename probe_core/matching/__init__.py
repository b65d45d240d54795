"""Pairing of two runs by equal names, and the order of the resulting rows."""
