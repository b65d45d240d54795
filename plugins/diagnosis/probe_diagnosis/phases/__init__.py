"""The phases of a recorded step: their file, their values and what differs in them."""
