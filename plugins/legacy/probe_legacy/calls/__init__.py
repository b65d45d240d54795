"""The Python API of ptdbg_ascend and torch_npu.hooks, implemented with probe's recorder."""

from importlib.util import find_spec

if find_spec("probe_pytorch") is None:
    raise ImportError(
        "The calls of the older tools record with probe-pytorch, which is not installed: "
        'pip install "probe-legacy[calls]"'
    )
