"""Hooks of probe-page: the format html, the page over all ranks, the command show, the option --lang."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.parameters import Parameter
from probe_core.plugins.specs import AnswerSpec, AnswerStage, CommandSpec, Option, OptionSpec, ReporterSpec

LANG = Parameter("lang", str, "language that the page opens in: en (default) or zh")
PAGE = Option(
    "page", ("--page",), "Also write a page for the browser next to the result; probe show can write it later."
)
PAGE_WRITERS = {
    "run-ut": "probe_page.checks:write_requested_page",
    "multi-run-ut": "probe_page.checks:write_requested_page",
    "api-precision-compare": "probe_page.checks:write_requested_page",
    "merge-result": "probe_page.merged:write_requested_page",
}
"""The function that writes the page of each command's result."""


@hookimpl
def probe_reporters() -> list[ReporterSpec]:
    """Return the reporter that writes a page."""
    return [
        ReporterSpec(
            "html", "a page for the browser", "probe_page.reporter:PageReporter", ".html", page=True,
            parameters=(LANG,),
        ),
    ]  # fmt: skip


@hookimpl
def probe_answers() -> list[AnswerSpec]:
    """Return the page over all ranks and steps of a comparison."""
    return [AnswerSpec("page", "the page over all ranks", "probe_page.overview:Overview", given=AnswerStage.LAST)]


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the command show."""
    return [CommandSpec("show", "Open the page of a comparison.", "probe_page.show_command:show")]


@hookimpl
def probe_options() -> list[OptionSpec]:
    """Return the option ``--lang`` of ``compare``, and ``--page`` of the commands that have no option ``--format``."""
    return [
        *(
            OptionSpec(
                f"page_of_{command.replace('-', '_')}", "writes a page of the result", factory,
                command=command, options=(PAGE,),
            )
            for command, factory in PAGE_WRITERS.items()
        ),
        OptionSpec(
            "page", "sets the language of the page", "probe_page.language:set_page_language", command="compare",
            options=(
                Option("lang", ("--lang",), "Language that the page opens in.", kind="text",
                       choices=("en", "zh")),
            ),
        ),
    ]  # fmt: skip
