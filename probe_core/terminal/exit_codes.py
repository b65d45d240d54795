"""The exit codes of all commands."""

EXIT_FINISHED, EXIT_FINDINGS, EXIT_USER_ERROR, EXIT_DATA_LOST, EXIT_DEFECT, EXIT_INTERRUPTED = 0, 1, 2, 3, 70, 130
EXIT_CODES = {
    EXIT_FINISHED: "The command finished, whatever it found.",
    EXIT_FINDINGS: "With `--fail-on`: found what it asks for, or the verdict is `NOT COMPARABLE` or `CANNOT TELL`.",
    EXIT_USER_ERROR: "The command line, an input file or a plugin is at fault; no value of two runs could be "
    "measured; or `--fail-on` had nothing to judge.",
    EXIT_DATA_LOST: "The command finished, but lost something: a call that ended its process, a file, a record.",
    EXIT_DEFECT: "A defect of probe; a traceback is printed.",
    EXIT_INTERRUPTED: "The command was interrupted (Ctrl-C); finished files are kept.",
}
"""The meaning of each exit code (docs/command-line.md#exit-codes)."""
