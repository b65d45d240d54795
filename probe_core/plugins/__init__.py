"""Finding plugins, and what they may give."""
