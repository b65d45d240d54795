"""The recording of one step."""
