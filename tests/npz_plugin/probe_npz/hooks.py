"""What this plugin contributes; imported at every start of probe, so nothing heavy here."""

from probe_matching import NameRule

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import ReaderSpec


@hookimpl
def probe_readers():
    """One reader, of directories with a manifest.json."""
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
    """A few functions of JAX by PyTorch's names."""
    return [
        NameRule(
            name="jax-to-pytorch",
            summary="jax.numpy and jax.nn, by what PyTorch calls them",
            source="jax",
            target="pytorch",
            factory="probe_npz.reader:names",
        )
    ]
