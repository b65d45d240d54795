"""The verdict on two runs: its coverage, its causes, its file, and its words on the terminal."""
