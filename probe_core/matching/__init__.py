"""Pairing two runs: exact, fuzzy, by a mapping file. Built in, registered like any plugin."""
