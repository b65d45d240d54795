"""The compiled part of probe-reporters; where it cannot be built, Python does its work."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "probe_reporters._lines",
            ["probe_reporters/_lines.cpp"],
            language="c++",
            extra_compile_args=["-std=c++17", "-O2"],
            optional=True,
        )
    ]
)
