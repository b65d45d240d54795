"""Start of worker processes: their import path and the main script."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from multiprocessing import util
from pathlib import Path

from probe_ranks.processes import ISOLATION_FLAGS, isolate_start


def test_clean_start_isolates_interpreters_and_restores_all() -> None:
    before = util._args_from_interpreter_flags  # type: ignore[attr-defined]
    main = dict(sys.modules["__main__"].__dict__)
    with isolate_start(), isolate_start():
        assert tuple(util._args_from_interpreter_flags()[-len(ISOLATION_FLAGS) :]) == ISOLATION_FLAGS  # type: ignore[attr-defined]
        assert not hasattr(sys.modules["__main__"], "__file__")
    assert util._args_from_interpreter_flags is before  # type: ignore[attr-defined]
    assert sys.modules["__main__"].__dict__ == main


def test_worker_processes_of_a_program_have_its_import_path(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import sys
            sys.path.insert(0, "/a/path/of/the/program")
            from operator import attrgetter
            from probe_ranks.executors import ProcessExecutor
            pool = ProcessExecutor().open(1, None).executor
            path = pool.submit(eval, "__import__('sys').path").result()
            pool.shutdown()
            assert path == sys.path, (path, sys.path)
            """
        )
    )
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "struct.py").write_text("raise SystemExit('imported from the working directory')")
    done = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        env={**os.environ},
    )
    assert done.returncode == 0, done.stderr
