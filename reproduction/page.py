"""All results as one page of documentation."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from randomset._core.files import replacing
from reproduction.exhibit import Exhibit, Outcome

__all__ = ["page_of", "write_page"]

_HEAD = """# The paper's tables and figures, reproduced

Each section shows the command that produces it; `python -m reproduction` lists them all. Scale `tiny` only
checks that everything runs; `cpu` uses the real data and networks that a desktop computer can train; `full`
is the paper's configuration. The paper's values, in parentheses, come from far larger networks: compare
which method leads and by how much, not the values themselves. CNN is the softmax network, DE the deep
ensemble, LB-BNN the Laplace bridge, and ENN the epinet.
"""


def page_of(
    exhibits: list[Exhibit], outcomes: Mapping[str, Outcome], pictures: Mapping[str, list[str]]
) -> str:
    """Return the page as Markdown; `pictures` are paths of images, by id."""
    parts = [_HEAD]
    for exhibit in exhibits:
        if exhibit.id not in outcomes:
            continue
        outcome = outcomes[exhibit.id]
        kind, number = exhibit.id.split("-")
        command = f"python -m reproduction run {exhibit.id} --scale {outcome.scale} --seeds {outcome.seeds}"
        measuring = outcome.measuring + outcome.reused
        lines = [
            f"## {kind.capitalize()} {number}: {exhibit.title}",
            f"`{command}`: training {_time(outcome.training)}, measurement {_time(measuring)}.",
            re.sub("^## ", "### ", exhibit.text(outcome), flags=re.MULTILINE),
            *(f"![{exhibit.title}]({path})" for path in pictures.get(exhibit.id, [])),
        ]
        parts.append("\n\n".join(lines))
    if missing := [exhibit.id for exhibit in exhibits if exhibit.id not in outcomes]:
        parts.append(f"## Not measured yet\n\nThere are no results at this scale for {', '.join(missing)}.")
    return "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def write_page(path: Path, folder: Path, exhibits: list[Exhibit], outcomes: Mapping[str, Outcome]) -> Path:
    """Write the page, and copy the figures from a folder of results to a folder beside it.

    For stored results, figures that are already beside the page are kept.
    """
    pictures: dict[str, list[str]] = {}
    beside = path.with_suffix("")
    for exhibit in exhibits:
        if exhibit.id not in outcomes:
            continue
        for picture in sorted((folder / exhibit.id).glob("*.png")):
            beside.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, beside / f"{exhibit.id}-{picture.name}")
        names = sorted(picture.name for picture in beside.glob(f"{exhibit.id}-*.png"))
        pictures[exhibit.id] = [f"{path.stem}/{name}" for name in names]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(page_of(exhibits, outcomes, pictures), encoding="utf-8")
    return path


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
