"""probe finds the operator that diverged first between two recorded runs of a model."""

__version__ = "0.1.0"
