"""Build of the compiled parts of probe-pytorch; other code replaces them if they cannot be built."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "probe_pytorch._tally",
            ["probe_pytorch/_tally.cpp"],
            depends=["probe_pytorch/_statistics.h", "probe_pytorch/_trees.h"],
            language="c++",
            extra_compile_args=["-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math"],
            optional=True,
        ),
        Extension("probe_pytorch._frames", ["probe_pytorch/_frames.c"], optional=True),
        Extension("probe_pytorch._ptfile", ["probe_pytorch/_ptfile.c"], optional=True),
    ]
)
