"""The plugin's hooks: matchers for runs whose names differ, and common names for two frameworks."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import MatcherSpec, Option, OptionSpec, ViewSpec

FUZZY_OPTION = Option(
    "fuzzy",
    ("-f", "--fuzzy-match"),
    "Pair calls whose names differ only in their number.",
    also=("-fm",),
    python_name="fuzzy",
)
MAPPING_OPTIONS = (
    Option(
        "mapping",
        ("-dm", "--data-mapping"),
        "YAML file that pairs row names: 'target name: golden name'.",
        kind="file",
        python_name="mapping",
    ),
    Option(
        "api_mapping",
        ("-am", "--api-mapping"),
        "Pair the APIs of two frameworks; a YAML file overrides the built-in mapping.",
        kind="file",
        value_optional=True,
    ),
    Option(
        "cell_mapping",
        ("-cm", "--cell-mapping"),
        "Pair the modules of two frameworks; a YAML file pairs names: 'fc.Dense: head.Linear'.",
        kind="file",
        value_optional=True,
    ),
    Option(
        "layer_mapping",
        ("-lm", "--layer-mapping"),
        "YAML file that pairs the children of module classes.",
        kind="file",
    ),
)
ROWS_OPTION = Option(
    "rows",
    ("--rows",),
    "Compare rows of the batches only: target=0,golden=3 (lists and ranges: target=0-3,"
    "golden=4-7), or tokens.json, the file that debugger.tokens writes in each run.",
    kind="text",
    metavar="ROWS",
)


@hookimpl
def probe_matchers() -> list[MatcherSpec]:
    """Return matchers for runs whose names differ."""
    return [
        MatcherSpec(
            "fuzzy",
            "equal names except for the call count, in order",
            "probe_matching.fuzzy:FuzzyMatcher",
            advice="-f pairs calls in their order",
        ),
        MatcherSpec(
            "align",
            "calls aligned in order, with insertions and omissions",
            "probe_matching.aligned:AlignmentMatcher",
            advice="--match align aligns the calls of both runs",
        ),
        MatcherSpec(
            "mapping",
            "names paired by a yaml file",
            "probe_matching.mapping:MappingMatcher",
            option="mapping",
            advice="-dm pairs names by a file",
        ),
    ]


@hookimpl
def probe_views() -> list[ViewSpec]:
    """Return the views of captured calls and of common rows, and the view that gives runs common names."""
    return [
        ViewSpec(
            "captured_calls", "the calls that both recorders capture", "probe_matching.captured:CapturedCallViewer"
        ),
        ViewSpec(
            "common_rows",
            "the rows that two batches have in common, for --rows",
            "probe_matching.rows.rows_view:CommonRowViewer",
        ),
        ViewSpec(
            "common_words",
            "common names for runs of two frameworks or with mapping files",
            "probe_matching.across:CommonNameViewer",
            asks=("name_rules",),
        ),
    ]


@hookimpl
def probe_options() -> list[OptionSpec]:
    """Return the options of compare that map names or choose rows."""
    return [
        OptionSpec(
            "fuzzy",
            "pairs calls whose names differ only in their number",
            "probe_matching.options:choose_fuzzy_matcher",
            command="compare",
            options=(FUZZY_OPTION,),
        ),
        OptionSpec(
            "mappings",
            "pairs rows, APIs and modules whose names differ",
            "probe_matching.options:add_mappings",
            command="compare",
            defaults={option.name: None for option in MAPPING_OPTIONS} | {"across": False},
            options=MAPPING_OPTIONS,
        ),
        OptionSpec(
            "rows",
            "compares the common rows of two batches",
            "probe_matching.rows.choice:add_row_choice",
            command="compare",
            defaults={"rows": None},
            options=(ROWS_OPTION,),
        ),
    ]
