"""probe finds the operator that went wrong first between two recorded runs of a model."""

__version__ = "0.1.0"
