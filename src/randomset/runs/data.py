"""The data of a run: what it held out, or other data, without the samples that it was trained on."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import NamedTuple

import torch

from randomset.data.sources import Source
from randomset.data.splits import Parts, unseen
from randomset.errors import FileFormatError
from randomset.evaluation.result import Evaluation
from randomset.runs.inputs import NetworkInputs

__all__ = ["HeldOut", "drawn", "measured_inputs", "own_data"]

logger = logging.getLogger(__name__)


class HeldOut(NamedTuple):
    """The data that a run is measured with."""

    test: Source
    validation: Source | None
    calibration: Source | None


def own_data(
    run: Path, load: NetworkInputs, test: str | None = None, validation: str | None = None
) -> HeldOut:
    """Return test, validation and calibration data: those that are named, else those that the run held out.

    Naming the source that the run was trained on means its held-out samples. Of any other test or validation
    data, the samples that the run was trained on are left out. If the run's own source has changed, its
    samples are recognised by their content: see `randomset.data.splits.Parts.match`.
    """
    own, split = load.config.get("source", ""), run / "split.json"
    test, validation = (
        None if name is not None and own in (name, os.path.realpath(name)) else name
        for name in (test, validation)
    )
    tested = None if test is None else unseen(split, load(test))
    held = None if validation is None else unseen(split, load(validation))
    calibration = None
    if split.exists() and (tested is None or held is None):
        try:
            data = load(own, "train")
            parts, remarks = Parts.match(split, data)
        except FileFormatError as error:
            if tested is None:
                raise
            logger.warning("The training data cannot be used for a threshold: %s", error)
            return HeldOut(tested, held, None)
        if tested is None and parts.test is not None:
            tested = data.part(parts.test)
            tested = dataclasses.replace(tested, remarks=(*data.remarks, *remarks))
        elif tested is None:  # published test data: compared with the training data only if those changed
            tested = unseen(split, load(own)) if remarks else load(own)
        data = dataclasses.replace(data, remarks=())  # the test data have them
        held = data.part(parts.validation) if held is None and len(parts.validation) else held
        calibration = data.part(parts.calibration) if len(parts.calibration) else None
    if tested is None or not len(tested):
        raise FileFormatError(
            "the run has no held-out samples to test on",
            got=str(run),
            remedy="Name labelled data: --test SOURCE",
        )
    return HeldOut(tested, held, calibration)


def drawn(source: Source, limit: int | None, seed: int) -> Source:
    """Draw at most `limit` of the inputs; None keeps all of them."""
    if limit is None or len(source) <= limit:
        return source
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed))
    return source.part(order[:limit].sort().values)


def measured_inputs(source: Source, result: Evaluation, name: str) -> Source:
    """Leave out the inputs that an evaluation left out."""
    left_out = result.numbers.get("left_out", {}).get(name, [])
    if not left_out:
        return source
    kept = torch.ones(len(source), dtype=torch.bool)
    kept[[row for row in left_out if row < len(source)]] = False
    return source.part(kept.nonzero()[:, 0])
