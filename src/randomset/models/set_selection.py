"""Choice of the sets of classes for a random-set network."""

from __future__ import annotations

import copy
import itertools
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from randomset._core.checks import is_whole
from randomset._core.files import write_document
from randomset.belief.budget import Budget
from randomset.budgeting.budgeter import Budgeter
from randomset.budgeting.overlap import clusters_of, number_of_sets
from randomset.errors import RandomSetError, RandomSetWarning
from randomset.models.cross_entropy import weighted_mean
from randomset.models.softmax import Softmax

if TYPE_CHECKING:
    from randomset.models.training_job import TrainingJob

__all__ = ["ClassLoss", "all_sets", "select_sets"]


def select_sets(job: TrainingJob) -> Budget:
    """Return the budget of a training job (given, stored, or chosen from features), and store it.

    A plain softmax network with the same backbone is trained first if the random-set network starts from it,
    or if the sets are chosen from its features, as they are for images and texts without pretrained weights.
    For tables, they are chosen from the columns.
    """
    config, budget = job.config, job.budget
    stored = None if job.out is None else job.out / "budget.json"
    if budget is None and job.resume and stored is not None and stored.exists():
        budget = Budget.load(stored)
        job.log(f"Resuming with {budget}.")
    if budget is None and config.num_sets == number_of_sets(len(job.classes)) - 1:
        budget = all_sets(job.classes)
    features_from_plain = config.weights == "none" and not job.is_table
    if config.starts_plain or (budget is None and features_from_plain):
        job.artifacts["plain"] = _train_plain(job)
    if budget is None:
        plain = None if job.is_table else job.artifacts.get("plain")
        features, codes = job.features(plain), job.labels
        if plain is not None:
            job.artifacts["features"] = features
        if codes.dim() > 1:  # a sample with a set-valued label counts for each of its classes
            places, codes = codes.nonzero(as_tuple=True)
            features = features[places]
        budgeter, budget = _choose(job, features, codes)
        job.artifacts["budgeter"] = budgeter
        job.log(f"Chose {budget}.")
        if stored is not None and budgeter is not None and (clusters := clusters_of(budgeter)) is not None:
            stored.parent.mkdir(parents=True, exist_ok=True)
            write_document(clusters, stored.parent / "clusters.json", "randomset.clusters", 1)
    if stored is not None:
        stored.parent.mkdir(parents=True, exist_ok=True)
        budget.save(stored)  # last: if it exists, the sets are not chosen again
    return budget


def _train_plain(job: TrainingJob) -> Softmax:
    purpose = "to start from" if job.config.starts_plain else "for its features"
    job.log(f"Training a plain network {purpose} …")
    member = job.config.starts_plain and job.seed is not None  # of an ensemble, with weights of its own
    backbone = job.parts()["backbone"] if member else copy.deepcopy(job.template)
    # Draws as many random numbers as earlier versions did, for the same results.
    nn.Linear(job.width, len(job.classes))
    plain = Softmax(
        backbone, len(job.classes), in_features=job.width, preprocess=copy.deepcopy(job.preprocess)
    )
    recipe, _ = job.config.phases(job.samples)
    job.fit(plain, loss=ClassLoss(), recipe=recipe, folder="first")
    return plain.eval()


def all_sets(classes: tuple[str, ...]) -> Budget:
    """Return every set of classes except Θ, which is part of every prediction anyway."""
    sizes = range(2, len(classes))
    sets = itertools.chain.from_iterable(itertools.combinations(classes, size) for size in sizes)
    return Budget.from_sets(sets, classes)


class ClassLoss(nn.Module):
    """Cross-entropy of a plain network; for a set-valued label S, −log Σ_{c ∈ S} p(c)."""

    def forward(self, outputs: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the (weighted) mean over the batch."""
        if labels.dtype == torch.bool:
            possible = outputs.masked_fill(~labels, -torch.inf)
            each = outputs.logsumexp(1) - possible.logsumexp(1)
        else:
            each = nn.functional.cross_entropy(outputs, labels, reduction="none")
        return weighted_mean(each, weight)


def _choose(job: TrainingJob, features: Tensor, codes: Tensor) -> tuple[Budgeter | None, Budget]:
    """Choose the sets, at most as many as there are."""
    num_sets, classes = job.config.num_sets, job.classes
    if num_sets != "auto":
        if not is_whole(num_sets, 0):
            raise RandomSetError(
                "num_sets is out of range", got=num_sets, expected='a non-negative integer or "auto"'
            )
        num_sets = min(num_sets, number_of_sets(len(classes)) - 1)  # without Θ
    if num_sets == 0 or len(classes) == 2:
        return None, Budget.singletons(classes)
    features = features.double() if features.dtype != torch.float32 else features
    spread = features.std(0, correction=0)
    used = features[:, spread > 0] / spread[spread > 0]
    if not used.shape[1] or len(torch.unique(codes)) < 2:
        return None, Budget.singletons(classes)
    dimensions = min(3, used.shape[1], max(len(used) - 1, 1))
    budgeter = Budgeter(
        num_sets,
        reducer=None if used.shape[1] <= dimensions else job.config.reducer,
        dimensions=dimensions,
        classes=list(classes),
        seed=job.config.seed,
        progress=job.progress,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RandomSetWarning)  # the report repeats them
        budgeter.fit(used.numpy(), np.asarray(codes))
    return budgeter, budgeter.budget_
