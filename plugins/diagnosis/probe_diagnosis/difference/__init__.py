"""The search for the calls where two runs diverge first, over the calls of all ranks."""
