"""Tables in .csv and .parquet files: a column of text, or columns of numbers, and one of labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from randomset.errors import FileFormatError, LabelError, MissingPackageError, RandomSetError

__all__ = ["LABELS", "TEXTS", "Table", "named_column", "read_table"]

LABELS = ("label", "labels", "class", "category", "target", "y")
TEXTS = ("text", "texts", "content", "sentence", "document")


@dataclass(frozen=True)
class Table:
    """Texts, or features (n × F), with the labels as they stand in the file, if it has any."""

    kind: Literal["text", "features"]
    inputs: Any
    labels: NDArray[Any] | None
    remarks: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    """The names of the features."""
    rows: tuple[int, ...] | None = None
    """Where each input stands in the file, counted from 0, if some were left out."""


def read_table(
    path: Path,
    label: str | None = None,
    text: str | None = None,
    columns: Sequence[str] | None = None,
    labelled: bool = True,
) -> Table:
    """Read a table.

    Without names, the column of labels is called label, labels, class, category, target or y, that of texts
    text, texts, content, sentence or document, or is the only other column. Without a column of texts, all
    others must be numbers; `columns` names those to use, in their order. Rows without text are left out, and
    so are numbered rows that pandas wrote without a name; both is told. Where no labels are needed,
    empty lines count as rows, so that the others keep their numbers.
    """
    try:
        import pandas
    except ImportError:
        raise MissingPackageError("pandas", "data") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)  # cells would be lost
            warnings.simplefilter(
                "ignore", pandas.errors.DtypeWarning
            )  # what the columns hold is looked at below
            if path.suffix == ".parquet":
                frame = pandas.read_parquet(path).reset_index(drop=True)
            else:
                frame = pandas.read_csv(path, skip_blank_lines=labelled, index_col=False)
    except ImportError:
        raise MissingPackageError("pyarrow", "data") from None
    except pandas.errors.ParserWarning:
        raise FileFormatError(
            "rows of the table have more cells than its first line",
            got=str(path),
            expected="a name for each column",
        ) from None
    except Exception as error:  # of the parsers, which meet damaged files with errors of many kinds
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise FileFormatError("the table cannot be read", got=f"{path}: {why}") from None
    if not len(frame):
        raise FileFormatError("the table is empty", got=str(path), expected="at least one row")
    frame.columns = [str(name) for name in frame.columns]
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise FileFormatError("two columns of the table have one name", got=f"{twice} in {path}")
    remarks: list[str] = []
    if counted := [name for name in frame.columns if name.startswith("Unnamed:")]:
        frame = frame.drop(columns=counted)
        remarks.append("a column without a name is left out")
    label = _label_column(list(frame.columns), label, columns, labelled, path)
    if columns is not None:
        if missing := [name for name in columns if name not in frame.columns]:
            raise RandomSetError(
                "the table lacks a column that the network was trained on", got=f"no {missing[0]} in {path}"
            )
        frame = frame[list(columns) if label is None else [*columns, label]]
    if labelled and label is None:
        raise LabelError(
            "the table has no labels",
            got=f"columns {', '.join(frame.columns)} in {path}",
            expected=f"a column called {', '.join(LABELS[:-1])} or {LABELS[-1]}",
            remedy="Name it: label=… in Python, --label-column on the command line",
        )
    others = [name for name in frame.columns if name != label]
    words = [name for name in others if not pandas.api.types.is_numeric_dtype(frame[name])]
    text = named_column(others, text, TEXTS, "texts", path)
    if text is None and len(words) == len(others) == 1:
        text = words[0]
    if text is not None:
        empty = frame[text].isna() | (frame[text].astype(str).str.strip() == "")
        if empty.all():
            raise FileFormatError("the column of texts is empty", got=f"{text} of {path}")
        if empty.any():
            places = empty.to_numpy().nonzero()[0].tolist()
            more = f" and {len(places) - 5} more" if len(places) > 5 else ""
            remarks.append(f"rows without text are left out: {', '.join(map(str, places[:5]))}{more}")
            frame = frame[~empty]
    elif not labelled:
        frame = frame.dropna(how="all")
    labels = None if label is None or not labelled else _labels(frame[label], path)
    rows = tuple(int(place) for place in frame.index)
    kept = None if rows == tuple(range(len(rows))) else rows
    if text is not None:
        return Table("text", [str(value) for value in frame[text]], labels, tuple(remarks), rows=kept)
    if words or not others:
        raise FileFormatError(
            "columns of the table hold no numbers" if words else "the table has no columns to learn from",
            got=f"{', '.join(words[:5]) or ', '.join(frame.columns)} of {path}",
            remedy="Name the column of texts or of labels, or turn the others into numbers",
        )
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        values = frame[others].to_numpy(dtype=np.float32, na_value=np.nan, copy=True)
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = (int(place) for place in np.argwhere(bad)[0])
        raise RandomSetError(
            "a cell of the table is no finite number",
            got=f"column {others[column]}, row {rows[row]} of {path}",
            remedy="Fill the gaps or remove these rows first",
        )
    if columns is None:
        remarks.append(f"the features are the columns {', '.join(others)}")
    return Table("features", torch.from_numpy(values), labels, tuple(remarks), tuple(others), kept)


def _label_column(
    found: list[str], label: str | None, columns: Sequence[str] | None, labelled: bool, path: Path
) -> str | None:
    """Find the column of labels; where none are needed, only to keep it out of the features."""
    if labelled or (columns is None and label in found):
        return named_column(found, label, LABELS, "labels", path)
    return None if columns is not None else named_column(found, None, LABELS, "labels", path)


def named_column(
    columns: list[str], wanted: str | None, usual: tuple[str, ...], what: str, where: object
) -> str | None:
    """Return the wanted column, or the first with a usual name; None if there is none."""
    if wanted is not None:
        if wanted not in columns:
            raise RandomSetError(
                f"there is no such column of {what}",
                got=f"{wanted} in {where}",
                expected=f"one of {', '.join(columns)}",
            )
        return wanted
    by_name = {name.lower(): name for name in columns}
    return next((by_name[name] for name in usual if name in by_name), None)


def _labels(column: Any, path: Path) -> NDArray[Any]:
    if column.isna().any():
        row = int(column.isna().to_numpy().argmax())
        raise RandomSetError("a label is missing", got=f"row {row} of {path}")
    values = column.to_numpy()
    return values.astype(str) if values.dtype.kind not in "iufb" else values
