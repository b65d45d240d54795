"""The values of both runs as columns: their differences, and the calls that they belong to."""
