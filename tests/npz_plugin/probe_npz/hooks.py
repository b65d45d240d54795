"""Hooks of the npz plugin; probe imports them at every start, so they import nothing heavy."""

from probe_matching.api import NameRule

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import ReaderSpec


@hookimpl
def probe_readers():
    """Return one reader, for directories with a manifest.json."""
    return [
        ReaderSpec(
            name="npz",
            summary="manifest.json with .npz files",
            framework="jax",
            record_files=("manifest.json",),
            factory="probe_npz.reader:NpzReader",
        )
    ]


@hookimpl
def probe_name_rules():
    """Return a table that gives a few functions of JAX the names of PyTorch."""
    return [
        NameRule(
            name="jax-to-pytorch",
            summary="jax.numpy and jax.nn by PyTorch's names",
            source="jax",
            target="pytorch",
            factory="probe_npz.reader:names",
        )
    ]
