"""Tables in .csv and .parquet files: a text column or numeric columns, and a label column."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from randomset._core.checks import listed
from randomset._core.packages import optional_package
from randomset.data.arrays import Content
from randomset.errors import FileFormatError, LabelError, MissingPackageError, RandomSetError, first_line

__all__ = ["LABELS", "TEXTS", "named_column", "read_table"]

LABELS = ("label", "labels", "class", "category", "target", "y")
TEXTS = ("text", "texts", "content", "sentence", "document")


def read_table(
    path: Path,
    label: str | None = None,
    text: str | None = None,
    columns: Sequence[str] | None = None,
    labelled: bool = True,
) -> Content:
    """Read a table.

    By default, the label column is the first of `LABELS`, and the text column the first of `TEXTS` or the
    only other column. Without a text column, all other columns must be numeric; `columns` selects and orders
    them. Rows without text and unnamed index columns written by pandas are skipped with a remark. If no
    labels are required, blank lines count as rows, so that row numbers are preserved.
    """
    frame = _read_frame(path, labelled)
    remarks: list[str] = []
    if unnamed := [name for name in frame.columns if name.startswith("Unnamed:")]:
        frame = frame.drop(columns=unnamed)
        remarks.append("an unnamed column is left out")
    label = _label_column(list(frame.columns), label, columns, labelled, path)
    if columns is not None:
        if missing := [name for name in columns if name not in frame.columns]:
            got = f"no {missing[0]} in {path}"
            raise RandomSetError("the table lacks a column that the network was trained on", got=got)
        frame = frame[list(columns) if label is None else [*columns, label]]
    if labelled and label is None:
        raise LabelError(
            "the table has no labels",
            got=f"columns {', '.join(frame.columns)} in {path}",
            expected=f"a column called {', '.join(LABELS[:-1])} or {LABELS[-1]}",
            remedy="Name it with label=… in Python or --label-column on the command line",
        )
    others = [name for name in frame.columns if name != label]
    text = named_column(others, text, TEXTS, "text", path)
    if text is None and len(others) == 1 and not _is_numeric(frame[others[0]]):
        text = others[0]
    if text is not None:
        empty = frame[text].isna() | (frame[text].astype(str).str.strip() == "")
        if empty.all():
            raise FileFormatError("the text column is empty", got=f"{text} of {path}")
        if empty.any():
            skipped = empty.to_numpy().nonzero()[0].tolist()
            remarks.append(f"rows without text are left out: {listed(skipped, 5)}")
            frame = frame[~empty]
    elif not labelled:
        frame = frame.dropna(how="all")
    labels = None if label is None or not labelled else _labels(frame[label], path)
    rows = tuple(int(row) for row in frame.index)
    kept = None if rows == tuple(range(len(rows))) else rows
    if text is not None:
        texts = [str(value) for value in frame[text]]
        return Content("text", texts, labels, remarks=tuple(remarks), rows=kept)
    features = _features(frame, others, path)
    if columns is None:
        remarks.append(f"the features are the columns {', '.join(others)}")
    return Content("features", features, labels, None, tuple(remarks), None, tuple(others), kept)


def _read_frame(path: Path, labelled: bool) -> Any:
    """Read a pandas DataFrame with at least one row and unique column names."""
    with optional_package("pandas", "data"):
        import pandas
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)  # cells would be lost
            warnings.simplefilter("ignore", pandas.errors.DtypeWarning)  # dtypes are checked later
            if path.suffix == ".parquet":
                frame = pandas.read_parquet(path).reset_index(drop=True)
            else:
                frame = pandas.read_csv(path, skip_blank_lines=labelled, index_col=False)
    except ImportError:
        raise MissingPackageError("pyarrow", "data") from None
    except pandas.errors.ParserWarning:
        raise FileFormatError(
            "table has rows with more cells than the header", got=str(path), expected="a name for each column"
        ) from None
    except Exception as error:  # parsers raise many kinds of errors on damaged files
        raise FileFormatError("cannot read table", got=f"{path}: {first_line(error)}") from None
    if not len(frame):
        raise FileFormatError("the table is empty", got=str(path), expected="at least one row")
    frame.columns = [str(name) for name in frame.columns]
    if not frame.columns.is_unique:
        duplicate = frame.columns[frame.columns.duplicated()][0]
        raise FileFormatError("duplicate column name", got=f"{duplicate} in {path}")
    return frame


def _is_numeric(column: Any) -> bool:
    import pandas

    return bool(pandas.api.types.is_numeric_dtype(column))


def _features(frame: Any, names: list[str], path: Path) -> Tensor:
    """Return the named columns as a float32 tensor (n × F) of finite numbers."""
    words = [name for name in names if not _is_numeric(frame[name])]
    if words or not names:
        raise FileFormatError(
            "columns are not numeric" if words else "the table has no feature columns",
            got=f"{listed(words, 5) or ', '.join(frame.columns)} of {path}",
            remedy="Name the text or label column, or convert the columns to numbers",
        )
    with np.errstate(over="ignore"):  # overflow becomes infinity, which is rejected below
        values = frame[names].to_numpy(dtype=np.float32, na_value=np.nan, copy=True)
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = (int(index) for index in np.argwhere(bad)[0])
        raise RandomSetError(
            "a cell is not a finite number",
            got=f"column {names[column]}, row {frame.index[row]} of {path}",
            remedy="Fill in missing values or remove these rows first",
        )
    return torch.from_numpy(values)


def _label_column(
    names: list[str], label: str | None, columns: Sequence[str] | None, labelled: bool, path: Path
) -> str | None:
    """Return the label column; if no labels are required, only to exclude it from the features."""
    if labelled or (columns is None and label in names):
        return named_column(names, label, LABELS, "label", path)
    return None if columns is not None else named_column(names, None, LABELS, "label", path)


def named_column(
    columns: list[str], wanted: str | None, defaults: tuple[str, ...], kind: str, where: object
) -> str | None:
    """Return the wanted column, or the first with a default name, or None."""
    if wanted is not None:
        if wanted not in columns:
            expected = f"one of {', '.join(columns)}"
            raise RandomSetError(f"unknown {kind} column", got=f"{wanted} in {where}", expected=expected)
        return wanted
    by_name = {name.lower(): name for name in columns}
    return next((by_name[name] for name in defaults if name in by_name), None)


def _labels(column: Any, path: Path) -> NDArray[Any]:
    if column.isna().any():
        row = int(column.isna().to_numpy().argmax())
        raise RandomSetError("missing label", got=f"row {row} of {path}")
    values = column.to_numpy()
    return values.astype(str) if values.dtype.kind not in "iufb" else values
