"""Build of the compiled reader of probe-recording; Python code replaces it if it cannot be built."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "probe_recording._records",
            ["probe_recording/_records.cpp"],
            language="c++",
            extra_compile_args=["-std=c++17", "-O2"],
            optional=True,
        )
    ]
)
