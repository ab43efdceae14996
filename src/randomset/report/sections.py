"""The frame of a report: sections of HTML, and beside them what the script draws into them."""

from __future__ import annotations

import html
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

import torch

from randomset.evaluation.result import sayable
from randomset.evaluation.tables import Table

__all__ = ["Curve", "Page", "charts_of", "escaped", "table_of"]

Curve = list[tuple[float, float]]


class Page:
    """Collects sections as HTML, and beside them what the script draws into them."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.names: dict[str, str] = {}
        self.content: dict[str, Any] = {"charts": [], "gallery": []}

    def section(self, title: str, body: str, note: str = "", name: str = "") -> None:
        """Add a part of the page."""
        name = name or f"part-{len(self.parts)}"
        self.names[name] = title
        self.parts.append(f'<section id="{name}"><h2>{escaped(title)}</h2>{_note(note)}{body}</section>')

    def chart(self, title: str, x: str, y: str, series: Mapping[str, Curve], **more: Any) -> str:
        """Return the place of a chart; `more` are ranges, bars, straight lines and notes on the series."""
        notes = more.pop("notes", {})
        spec = {
            "title": title,
            "x": {"name": x, "range": more.pop("x_range", None)},
            "y": {"name": y, "range": more.pop("y_range", None)},
            "series": [
                {"name": name, "points": points, "note": notes.get(name, "")}
                for name, points in series.items()
            ],
            **more,
        }
        self.content["charts"].append(spec)
        number = len(self.content["charts"]) - 1
        caption = f"<figcaption>{escaped(title)}</figcaption>"
        return f'<figure data-chart="{number}">{caption}<div class="plot"></div></figure>'

    def gallery(self, samples: Sequence[Mapping[str, Any]]) -> str:
        """Return the place of a row of samples."""
        self.content["gallery"].append(list(samples))
        return f'<div class="gallery" data-gallery="{len(self.content["gallery"]) - 1}"></div>'

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Add how it was made."""
        text = escaped(json.dumps(sayable(settings), indent=1, ensure_ascii=False))
        self.section("Settings", f"<details><summary>How it was made</summary><pre>{text}</pre></details>")

    def _links(self) -> str:
        items = "".join(f'<a href="#{name}">{escaped(title)}</a>' for name, title in self.names.items())
        return f'<nav aria-label="Parts of the report">{items}</nav>'

    def finished(self, title: str, summary: str) -> str:
        """Put the page together."""
        import randomset

        read = resources.files("randomset.report") / "page"
        versions = f"randomset {randomset.__version__}, torch {torch.__version__}"
        return Template((read / "report.html").read_text("utf-8")).substitute(
            title=escaped(title),
            summary=summary + self._links(),
            style=(read / "report.css").read_text("utf-8"),
            script=(read / "report.js").read_text("utf-8"),
            body="\n".join(self.parts),
            content=_script_json(self.content),
            footer=escaped(f"Written by {versions}, Python {platform.python_version()}."),
        )


def charts_of(charts: Sequence[str]) -> str:
    """Put charts beside each other."""
    return f'<div class="charts">{"".join(charts)}</div>'


def table_of(table: Table, kind: str = "") -> str:
    """Return a table as HTML."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    mark = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll"><table{mark}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _cell(text: str) -> str:
    bold = text.startswith("**") and text.endswith("**")
    return f"<b>{escaped(text[2:-2])}</b>" if bold else escaped(text)


def escaped(value: str) -> str:
    """Make a text safe within HTML."""
    return html.escape(value)


def _note(text: str) -> str:
    return f'<p class="note">{escaped(text)}</p>' if text else ""


def _script_json(content: Any) -> str:
    """JSON that cannot end the script it stands in."""
    text = json.dumps(sayable(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
