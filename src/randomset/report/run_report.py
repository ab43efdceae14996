"""The report of a run as one HTML file: its evaluation, with samples, sets and clusters."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from randomset._core.checks import is_number
from randomset._core.files import check_version, check_writable
from randomset._core.locks import lock_folder
from randomset.backbones.hugging_face import load_tokenizer
from randomset.belief.budget import Budget
from randomset.belief.focal_sets import braces
from randomset.data.sources import Source
from randomset.errors import FileFormatError, RandomSetError
from randomset.evaluation.result import Evaluation
from randomset.models.threshold import Threshold
from randomset.report.gallery import gallery_of
from randomset.report.html import evaluation_report, write_report
from randomset.runs.data import TOKENIZER, drawn, measured_inputs
from randomset.runs.run import Run

__all__ = ["report_of_run", "write_run_report"]

logger = logging.getLogger(__name__)


def report_of_run(run: Run, folder: Path) -> Path:
    """Write report.html from a stored evaluation.

    The samples are taken from the data that were evaluated, if they are still available.
    """
    if (run.folder / "comparison.json").exists():
        raise FileFormatError(
            "expected a run folder, got the folder of a comparison",
            got=str(run.folder),
            remedy="Open its report.html, or repeat the command that created it: nothing is trained again",
        )
    if not run.folder.is_dir():
        raise FileFormatError("the run folder does not exist", got=str(run.folder))
    if not (run.folder / "evaluation.json").exists():
        raise FileFormatError(
            "the run has not been evaluated",
            got=str(run.folder),
            remedy=f"Run randomset evaluate {run.folder} --ood NAME=SOURCE first",
        )
    check_writable(folder / "report.html")
    result = Evaluation.load(run.folder)
    about = result.numbers.get("run") or {}

    def samples(name: str, load: Callable[[], Source]) -> Source | None:
        """Return the data as they were evaluated; None, with a warning, if they are not available."""
        try:
            data = measured_inputs(load(), result, name)
            if len(data) != len(result.predictions[name]):
                raise FileFormatError("the data have changed since the evaluation", got=f"{len(data)} inputs")
            return data
        except RandomSetError as error:
            logger.warning("The report has no samples of %s: %s", name, error)
            return None

    def unknown(source: str) -> Source:
        return drawn(run.load(source, labelled=False), about.get("ood_samples"), about.get("seed", 0))

    tested = samples("test", lambda: run.data(about.get("test_source")).test)
    ood = {
        name: data
        for name, source in about.get("ood", {}).items()
        if (data := samples(name, lambda source=source: unknown(source))) is not None  # type: ignore[misc]
    }
    return write_run_report(run, folder, result, tested, ood)


def write_run_report(
    run: Run, folder: Path, result: Evaluation, tested: Source | None, ood: Mapping[str, Source]
) -> Path:
    """Write report.html for an evaluation of a run; without test data there is no gallery."""
    threshold, words = None, None
    if stored := result.numbers.get("threshold"):
        threshold = Threshold(stored["score"], stored["value"], stored["share"])
    if run.model.notes.get("tokens"):
        tokenizer = load_tokenizer(run.folder / TOKENIZER)
        words = lambda tokens: tokenizer.decode(tokens[tokens >= 0], skip_special_tokens=True)  # noqa: E731
    groups = []
    if tested is not None:
        groups = gallery_of(run.model, result, tested, ood, words=words, threshold=threshold)
    title = f"{run.folder.resolve().name}: {result['run']['test']}"
    with lock_folder(folder):
        text = evaluation_report(
            result, title=title, gallery=groups, space=_clusters(run.folder), sets=_overlaps(run.folder)
        )
        return write_report(text, folder / "report.html")


def _overlaps(run: Path) -> list[tuple[str, float]]:
    """Return the sets of a run's budget with their overlaps, the largest first."""
    if not (run / "budget.json").exists():
        return []
    budget = Budget.load(run / "budget.json")
    names = [braces(list(budget.names_of(i)), shorten=6) for i in range(budget.num_classes, len(budget))]
    overlaps = (budget.origin or {}).get("overlaps", [])
    if len(overlaps) != len(names):
        return []
    return sorted(zip(names, overlaps, strict=True), key=lambda pair: -pair[1])


def _clusters(run: Path) -> Any:
    """Return the ellipsoids of a run's classes; None if there are none, or they cannot be read."""
    if not (run / "clusters.json").exists():
        return None
    try:
        clusters = json.loads((run / "clusters.json").read_text(encoding="utf-8"))
        check_version(clusters.get("version", 1), 1, "clusters.json")  # early versions had no version number
        count = len(clusters["classes"])
        points = np.array(clusters["points"], float).reshape(-1, 4)
        ellipsoids = clusters["ellipsoids"]
        shapes = {(np.shape(ellipsoid["centre"]), np.shape(ellipsoid["axes"])) for ellipsoid in ellipsoids}
        owners = [*points[:, 3], *(ellipsoid["of"] for ellipsoid in ellipsoids)]
        if shapes - {((3,), (3, 3))} or not all(0 <= owner < count for owner in owners):
            raise ValueError("unexpected shapes")
        if not np.isfinite(points).all() or not is_number(clusters["radius"]):
            raise ValueError("values are not finite")
        return {**clusters, "radius": float(clusters["radius"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        logger.warning("The class ellipsoids are not drawn: cannot read %s.", run / "clusters.json")
        return None
