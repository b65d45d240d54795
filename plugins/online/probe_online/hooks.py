"""Hooks of probe-online: the options of run-ut that make it a receiver."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import Option, OptionSpec

OPTIONS = (
    Option("listen", ("--listen",), "Judge calls that trainings send to this address.", "text", "HOST:PORT"),
    Option("watch", ("--watch",), "Judge the calls that trainings write into this shared directory.", "text",
           "DIR"),
    Option("status", ("--status",), "Print the state of the receiver at this address as JSON.", "text",
           "HOST:PORT"),
    Option("tls", ("--tls",), "Directory with server.key and server.crt.", "text", "DIR"),
    Option("insecure", ("--insecure",), "Take calls in plain text from other machines."),
    Option("patience", ("--patience",), "Time to wait for a sender that is gone.  [default: 600]", "text",
           "SECONDS"),
    Option("max_age", ("--max-age",),
           "Remove what silent trainings left in the shared directory.  [default: 7]",
           "text", "DAYS"),
    Option("workers", ("--workers",), "Number of processes.  [default: one per device]", "text", "N"),
    Option("most_body", ("--most-body",), "Largest accepted call.  [default: 1 GiB]", "text", "BYTES"),
    Option("window", ("--window",), "Memory for calls in work.  [default: 1 GiB]", "text", "BYTES"),
)  # fmt: skip


@hookimpl
def probe_options() -> list[OptionSpec]:
    """Return the options that make run-ut a receiver."""
    return [
        OptionSpec(
            "online",
            "judges the calls of trainings while they run",
            "probe_online.command:ONLINE",
            command="run-ut",
            options=OPTIONS,
        )
    ]
