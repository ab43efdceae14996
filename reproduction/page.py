"""All results as one page of documentation."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from randomset._core.files import replacing
from reproduction.exhibit import Exhibit, Outcome

__all__ = ["page_of", "write_page"]

_HEAD = """# The paper's tables and figures, made here

Every part is made by the command below its heading; `python -m reproduction` lists them all. Scale `tiny`
shows that the programs run; `cpu` takes the real data and networks that a desktop computer trains; `full`
is the paper's own configuration. In brackets stand the paper's numbers, whose networks are far larger: what
can be compared is which method leads, and by how much.
"""


def page_of(
    exhibits: list[Exhibit], outcomes: Mapping[str, Outcome], pictures: Mapping[str, list[str]]
) -> str:
    """Return the page as Markdown; `pictures` are paths of images, by id."""
    parts = [_HEAD]
    missing = [one for one in exhibits if one.id not in outcomes]
    for one in exhibits:
        if one.id not in outcomes:
            continue
        outcome = outcomes[one.id]
        kind, number = one.id.split("-")
        command = f"python -m reproduction run {one.id} --scale {outcome.scale} --seeds {outcome.seeds}"
        measuring = outcome.measuring + outcome.reused
        times = f"trained in {_time(outcome.training)}, measured in {_time(measuring)}"
        lines = [
            f"## {kind.capitalize()} {number}: {one.title}",
            f"`{command}`: {times}.",
            re.sub("^## ", "### ", one.text(outcome), flags=re.MULTILINE),
            *(f"![{one.title}]({path})" for path in pictures.get(one.id, [])),
        ]
        parts.append("\n\n".join(lines))
    if missing:
        names = ", ".join(one.id for one in missing)
        parts.append(f"## Not measured yet\n\nAt this scale there are no results of {names}.")
    return "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def write_page(path: Path, folder: Path, exhibits: list[Exhibit], outcomes: Mapping[str, Outcome]) -> Path:
    """Write the page, and beside it the pictures of a folder of results.

    Of results that come with the library, the pictures are those that stand beside the page already.
    """
    pictures: dict[str, list[str]] = {}
    beside = path.with_suffix("")
    for one in exhibits:
        if one.id not in outcomes:
            continue
        for picture in sorted((folder / one.id).glob("*.png")):
            beside.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, beside / f"{one.id}-{picture.name}")
        there = sorted(place.name for place in beside.glob(f"{one.id}-*.png"))
        pictures[one.id] = [f"{path.stem}/{name}" for name in there]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(page_of(exhibits, outcomes, pictures), encoding="utf-8")
    return path


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
