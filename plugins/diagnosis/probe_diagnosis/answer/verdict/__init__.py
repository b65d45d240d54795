"""The verdict on a rank and on all ranks, its file, and its words on the terminal."""
