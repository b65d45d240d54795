"""Build of probe-pytorch: its compiled parts, which other code replaces if they cannot be built, and its start file.

The interpreter reads the start file when it starts, so it must be next to the package and not in it.
"""

import base64
import hashlib
import os
import shutil
import zipfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

START_FILE = "probe-pytorch-run.pth"


class BuildWithStartFile(build_py):
    """The copying of modules, and of the start file."""

    def run(self) -> None:
        """Copy the files."""
        super().run()
        if not self.editable_mode:
            Path(self.build_lib).mkdir(parents=True, exist_ok=True)
            self.copy_file(START_FILE, os.path.join(self.build_lib, START_FILE))  # noqa: PTH118

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the copied files."""
        outputs = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, os.path.join(self.build_lib, START_FILE)]  # noqa: PTH118


class EditableWheelWithStartFile(editable_wheel):
    """The wheel of an editable installation, with the start file."""

    def run(self) -> None:
        """Write the wheel."""
        super().run()
        for wheel in Path(self.dist_dir).glob("*.whl"):
            add_file(wheel, Path(START_FILE))


def add_file(wheel: Path, file: Path) -> None:
    """Add a file to a wheel and to its list of files, unless it is there."""
    data = file.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    copy = wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as target:
        if file.name in source.namelist():
            return
        for member in source.infolist():
            content = source.read(member)
            if member.filename.endswith(".dist-info/RECORD"):
                content = f"{file.name},sha256={digest},{len(data)}\n".encode() + content
            target.writestr(member, content)
        target.writestr(file.name, data)
    shutil.move(copy, wheel)


setup(
    cmdclass={"build_py": BuildWithStartFile, "editable_wheel": EditableWheelWithStartFile},
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
    ],
)
