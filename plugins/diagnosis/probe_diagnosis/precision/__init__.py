"""Signatures of matrix products that are computed in a lower precision than their inputs."""
