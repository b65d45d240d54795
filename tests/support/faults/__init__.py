"""Faults that tests plant: disks that fail, damaged files, operators that compute something else."""
