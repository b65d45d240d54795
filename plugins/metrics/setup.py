"""Build the compiled engine of probe-metrics; without it, the metrics use numpy."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "probe_metrics._kernel",
            ["probe_metrics/_kernel.cpp"],
            depends=["probe_metrics/_elements.h", "probe_metrics/_guard.h"],
            language="c++",
            extra_compile_args=[
                "-std=c++17",
                "-O3",
                "-ffp-contract=off",
                "-fno-math-errno",
                "-fno-trapping-math",
                "-Wno-psabi",
                "-pthread",
            ],
            extra_link_args=["-pthread"],
            optional=True,
        )
    ]
)
