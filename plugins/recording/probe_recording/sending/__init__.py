"""Sending of recorded calls while a training runs, and the format that both ends share."""
