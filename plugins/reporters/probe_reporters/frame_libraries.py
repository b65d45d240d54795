"""Data frames of pandas, polars and Arrow from columns; this module can be imported without these packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from probe_core.errors import UserError
from probe_core.model.columns import Array
from probe_reporters.frame import ColumnType

_ARROW_TYPES = {
    ColumnType.TEXT: "string",
    ColumnType.NUMBER: "float64",
    ColumnType.INTEGER: "int64",
    ColumnType.BOOLEAN: "bool_",
}
_POLARS_TYPES = {
    ColumnType.TEXT: "String",
    ColumnType.NUMBER: "Float64",
    ColumnType.INTEGER: "Int64",
    ColumnType.BOOLEAN: "Boolean",
}


def import_frame_library() -> Any:
    """Return the package pandas or, if that is not installed, polars.

    Raises:
        UserError: Neither of them is installed.
    """
    for name in ("pandas", "polars"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise UserError(
        "A data frame needs pandas or polars, and neither is installed.",
        "Install one (pip install pandas), or iterate over rows(), which needs neither.",
    )


def import_pyarrow(name: str = "pyarrow") -> Any:
    """Return pyarrow or one of its modules.

    Raises:
        UserError: pyarrow is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(
            "Parquet files and Arrow tables need pyarrow, which is not installed.",
            "Install it: pip install pyarrow",
        ) from error


def create_data_frame(library: Any, columns: Mapping[str, Array], kinds: Mapping[str, ColumnType]) -> Any:
    """Return a data frame of pandas or polars.

    Args:
        library: The package.
        columns: The columns by their headers.
        kinds: Their kinds; polars and pandas hold missing texts and booleans, and polars missing numbers, as
            null.
    """
    if library.__name__ == "pandas":
        booleans = {header: "boolean" for header in columns if kinds[header] is ColumnType.BOOLEAN}
        return library.DataFrame(dict(columns)).astype(booleans)
    schema = {header: getattr(library, _POLARS_TYPES[kinds[header]]) for header in columns}
    data = {header: column.tolist() if column.dtype == object else column for header, column in columns.items()}
    return library.DataFrame(data, schema=schema, nan_to_null=True)


def create_arrow_schema(kinds: Mapping[str, ColumnType]) -> Any:
    """Return the ``pyarrow.Schema`` of columns."""
    arrow = import_pyarrow()
    return arrow.schema([(header, getattr(arrow, _ARROW_TYPES[kind])()) for header, kind in kinds.items()])


def create_arrow_table(columns: Mapping[str, Array], kinds: Mapping[str, ColumnType]) -> Any:
    """Return a ``pyarrow.Table``, whose missing values are null."""
    arrow, schema = import_pyarrow(), create_arrow_schema({header: kinds[header] for header in columns})
    arrays = [arrow.array(column, field.type, from_pandas=True) for column, field in zip(columns.values(), schema)]
    return arrow.Table.from_arrays(arrays, schema=schema)
