"""The answer of ``-da``: a file for each rank, and the calls that the verdict names."""
