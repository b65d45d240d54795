"""Build of the compiled part of probe-reporters; Python code replaces it if it cannot be built."""

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
