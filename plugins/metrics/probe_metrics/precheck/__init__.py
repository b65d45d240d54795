"""The precision standards of the pre-check, and the status that each output is given at once."""
