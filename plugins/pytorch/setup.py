"""The build of probe-pytorch's optional C extension; if it cannot be built, torch is used instead."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "probe_pytorch._tally",
            ["probe_pytorch/_tally.c"],
            extra_compile_args=["-O3", "-fno-math-errno", "-fno-trapping-math"],
            optional=True,
        )
    ]
)
