"""Hooks of probe-legacy: readers of the older tools' files, their own tables, commands."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import AnswerSpec, CommandSpec, Option, OptionSpec, ReaderSpec, ViewSpec

FILES = (".pkl",)


@hookimpl
def probe_readers() -> list[ReaderSpec]:
    """Return the readers of both tools."""
    return [
        ReaderSpec(
            "ptdbg",
            "dumps of ptdbg_ascend 1.0 to 6.0: text files called .pkl",
            "probe_legacy.reading.reader:PtdbgReader",
            framework="pytorch",
            record_files=FILES,
            framework_frames=("ptdbg_ascend/",),
        ),
        ReaderSpec(
            "hooks",
            "dumps of torch_npu.hooks 3.0.rc3 to 5.0: text files called .pkl",
            "probe_legacy.reading.reader:HooksReader",
            framework="pytorch",
            record_files=FILES,
            framework_frames=("torch_npu/hooks/",),
        ),
    ]


@hookimpl
def probe_views() -> list[ViewSpec]:
    """Return the view that pairs an older dump with a run of a current recorder."""
    return [ViewSpec("older_dump", "an older dump beside a run of today's recorders", "probe_legacy.view:OlderDump")]


@hookimpl
def probe_answers() -> list[AnswerSpec]:
    """Return the tables that ``--as`` asks for."""
    return [
        AnswerSpec("as_ptdbg", "the table of ptdbg_ascend", "probe_legacy.compare.answer:create_ptdbg_answer"),
        AnswerSpec("as_hooks", "the table of torch_npu.hooks", "probe_legacy.compare.answer:create_hooks_answer"),
        AnswerSpec(
            "as_hooks_shapes",
            "the table of torch_npu.hooks with its shape_flag",
            "probe_legacy.compare.answer:create_hooks_answer_with_shapes",
        ),
    ]


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands ``parse`` and ``convert``."""
    return [
        CommandSpec("parse", "Print statistics and call stacks of one dump.", "probe_legacy.parse.group:parse"),
        CommandSpec("convert", "Convert ACL dumps of an NPU to .npy files.", "probe_legacy.convert_command:convert"),
    ]


@hookimpl
def probe_options() -> list[OptionSpec]:
    """Return the option ``--as`` of compare."""
    return [
        OptionSpec(
            "as",
            "writes the table of an older tool",
            "probe_legacy.compare.answer:ask",
            command="compare",
            options=(
                Option(
                    "tool",
                    ("--as", "--as-tool"),
                    "Write the csv that ptdbg_ascend or torch_npu.hooks wrote, in place of probe's tables.",
                    kind="text",
                    choices=("ptdbg", "hooks"),
                ),
                Option(
                    "with_shapes",
                    ("--as-shapes",),
                    "With --as hooks: calls match only where dtypes and shapes are equal (its shape_flag).",
                    needs="tool",
                ),
            ),
        )
    ]
