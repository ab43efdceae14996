"""The estimator: features and labels in, the sets of classes that matter out."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from randomset.belief.budget import Budget
from randomset.budgeting.ellipsoids import Ellipsoids, coverage_from_radius, radius_from_coverage
from randomset.budgeting.features import extract_features
from randomset.budgeting.gaussians import ClassGaussians, Floats
from randomset.budgeting.inputs import check_spread, checked_features, encoded_labels
from randomset.budgeting.knee import knee
from randomset.budgeting.overlap import Overlaps, overlap_curve, top_overlaps
from randomset.budgeting.reduce import SAMPLES, Reducer, check_reducer, named_reducer, stratified_sample
from randomset.budgeting.reporting import BudgetReport
from randomset.budgeting.stream import Change, Streaming
from randomset.errors import BudgetError, RandomSetError, RandomSetWarning
from randomset.progress import progress_bar

__all__ = ["Budgeter"]


class Budgeter(Streaming):
    """Finds the K sets of classes whose regions in feature space overlap most (Algorithm 1).

    Features are reduced to a few dimensions, each class becomes the ellipsoid that holds most of its
    Gaussian, and

    overlap(A) = |∩_{c∈A} A^c| / |∪_{c∈A} A^c|

    ranks the sets of two or more classes. The ranking is exact: no set is left out, whatever its size. Where
    fewer than K sets overlap, the ellipsoids grow until enough do.

    Args:
        num_sets: K, the number of sets beside the singletons, or "auto" (see `randomset.budgeting.knee`).
        reducer: "pca", "lda", "tsne", "umap", "autoencoder", None for features that have few dimensions
            already, or any object with `fit_transform(features, labels)`.
        dimensions: how many dimensions a named reducer keeps. coverage: the share of a class that its
        ellipsoid holds. grow: whether the ellipsoids may grow beyond `coverage` to reach K sets. components:
        Gaussians in each class; with several, a class is the union of their ellipsoids. floor: what is added
        to each variance, in units of the mean variance of all reduced features. max_samples: how many samples
        (stratified, at least 20 of each class) a reducer sees; "auto" takes all,
            but 3,000 for t-SNE and 10,000 for UMAP.
        max_points: how many points may be spent on telling overlaps apart, in all ellipsoids together.
        classes: the names of the classes in label order. drift_level: for `partial_fit`: the probability,
        over the whole time between two computations, of taking a
            cluster that stays for one that drifts.
        forget: for `partial_fit`: whether a class that drifted forgets the samples from before. layer: for
        (model, loader): the module whose output is the feature, if not the last linear layer's input. seed:
        makes everything deterministic. progress: show progress bars; None shows them on a terminal.

    After `fit`: `budget_`; `overlaps_`, `errors_` and `coverages_` for its K sets in the budget's order;
    `ranking_` (the same, best first); `ellipsoids_`; `embedding_` and `labels_` of the samples at
    `sample_indices_`; `reducer_`; `report_`.

    >>> import numpy as np
    >>> draw = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], 200)
    >>> centres = np.array([[2.5, 0, 0], [2, 0.5, 0], [0, 2, 0.5]]) @ np.eye(3, 8)
    >>> features = draw.normal(size=(600, 8)) + centres[labels]
    >>> budgeter = Budgeter(num_sets=2, classes=["cat", "dog", "car"]).fit(features, labels)
    >>> budgeter.budget_
    Budget(3 classes, 2 sets: {cat, dog}, {dog, car})
    >>> bool(budgeter.overlaps_[0] > budgeter.overlaps_[1])
    True
    """

    def __init__(
        self,
        num_sets: int | Literal["auto"] = 20,
        *,
        reducer: str | Reducer | None = "pca",
        dimensions: int = 3,
        coverage: float = 0.95,
        grow: bool = True,
        components: int = 1,
        floor: float = 1e-6,
        max_samples: int | Literal["auto"] | None = "auto",
        max_points: int = 2**20,
        classes: Sequence[str] | None = None,
        drift_level: float = 0.01,
        forget: bool = True,
        layer: str | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> None:
        self.num_sets = num_sets
        self.reducer = reducer
        self.dimensions = dimensions
        self.coverage = coverage
        self.grow = grow
        self.components = components
        self.floor = floor
        self.max_samples = max_samples
        self.max_points = max_points
        self.classes = classes
        self.drift_level = drift_level
        self.forget = forget
        self.layer = layer
        self.seed = seed
        self.progress = progress

    def fit(self, features: Any, labels: Any = None) -> Budgeter:
        """Choose the sets from features (n × F) and labels, or from (model, data loader)."""
        self._check_parameters()
        seconds: dict[str, float] = {}
        with _timed(seconds, "features"):
            features, labels = self._features(features, labels)
            matrix = checked_features(features)
            samples = len(matrix)
            codes, names = encoded_labels(labels, len(matrix), self.classes)
            self._check_num_sets(len(names))
            check_spread(matrix)
        with _timed(seconds, "reduction"):
            self.sample_indices_ = stratified_sample(codes, self._samples(len(matrix)), seed=self.seed)
            if len(self.sample_indices_) < len(matrix):
                matrix, codes = matrix[self.sample_indices_], codes[self.sample_indices_]
            self.embedding_ = self._reduce(matrix, codes, len(names))
            self.labels_ = codes
        with _timed(seconds, "Gaussians"):
            self.gaussians_ = ClassGaussians.from_points(self.embedding_, codes, len(names))
        self.n_features_in_, self.classes_ = matrix.shape[1], names
        self.samples_seen_ = samples
        self.changes_: list[Change] = []
        self._choose(seconds)
        return self

    def transform(self, features: Any) -> Floats:
        """Return the places of new features in the reduced space, where the reducer can place new data."""
        self._check_fitted()
        matrix = checked_features(features, self.n_features_in_)
        if self.reducer_ is None:
            return matrix.astype(np.float64)
        place = getattr(self.reducer_, "transform", None)
        if place is None:
            raise RandomSetError(
                "the reducer cannot place new data",
                got=type(self.reducer_).__name__,
                remedy='Use "pca", "lda", "autoencoder" or "umap"',
            )
        return np.asarray(place(matrix), np.float64)

    # -- the steps ------------------------------------------------------------------------------

    def _features(self, features: Any, labels: Any) -> tuple[Any, Any]:
        if not (isinstance(features, tuple) and len(features) == 2 and isinstance(features[0], nn.Module)):
            return features, labels
        found, seen = extract_features(*features, layer=self.layer, progress=self.progress)
        return found, seen if labels is None else labels

    def _reduce(self, matrix: NDArray[Any], codes: NDArray[np.int64], num_classes: int) -> Floats:
        reducer = self.reducer
        if isinstance(reducer, str):
            reducer = named_reducer(
                reducer, self.dimensions, matrix.shape, num_classes, seed=self.seed, progress=self.progress
            )
        self.reducer_ = reducer
        if reducer is None:
            return matrix.astype(np.float64)
        points = np.asarray(reducer.fit_transform(matrix, codes), np.float64)
        if points.ndim != 2 or len(points) != len(matrix) or not np.isfinite(points).all():
            raise RandomSetError(
                "the reducer did not give a finite place for each sample",
                got=f"shape {points.shape} from {type(reducer).__name__}",
                expected=f"({len(matrix)}, dimensions)",
            )
        return points

    def _choose(self, seconds: dict[str, float]) -> None:
        """From Gaussians to the budget."""
        gaussians, names = self.gaussians_, self.classes_
        self._remember()
        floor = self.floor * gaussians.spread()
        if not floor > 0:
            raise RandomSetError(
                "the reduced features do not vary", got=f"mean variance {gaussians.spread():.3g}"
            )
        radius = radius_from_coverage(self.coverage, gaussians.dimensions)
        with _timed(seconds, "ellipsoids"):
            if self.components == 1:
                ellipsoids = Ellipsoids.from_gaussians(gaussians, floor, radius)
            else:
                ellipsoids = Ellipsoids.from_mixtures(
                    self.embedding_, self.labels_, gaussians, self.components, floor, radius, self.seed
                )
        title = f"ranking the sets of {len(names)} classes"
        with _timed(seconds, "overlaps"), progress_bar(title, None, self.progress):
            self.curve_, chosen = self._overlaps(ellipsoids, len(names))
        coverages = [coverage_from_radius(r, gaussians.dimensions) for r in chosen.radii.tolist()]
        self.ellipsoids_ = ellipsoids
        self.ranking_ = chosen
        self.report_ = BudgetReport.describe(
            gaussians, names, chosen, self.coverage, radius, self._wanted(), self.samples_seen_, seconds
        )
        for note in self.report_.warnings:
            warnings.warn(note, RandomSetWarning, stacklevel=3)
        budget = Budget.from_sets(chosen.sets, names)
        place = {focal: i for i, focal in enumerate(chosen.sets)}
        order = [place[focal] for focal in budget.sets[budget.num_classes :]]
        self.overlaps_, self.errors_ = chosen.overlaps[order], chosen.errors[order]
        self.coverages_ = np.array(coverages)[order]
        self.budget_ = budget.with_origin(self._origin())

    def _overlaps(self, ellipsoids: Ellipsoids, num_classes: int) -> tuple[Overlaps | None, Overlaps]:
        options: dict[str, Any] = {"grow": self.grow, "max_points": self.max_points, "seed": self.seed}
        if self.num_sets != "auto":
            return None, top_overlaps(ellipsoids, num_classes, self.num_sets, **options)
        most = min(10 * num_classes, _number_of_sets(num_classes))
        there = len(np.unique(ellipsoids.class_of))
        curve = overlap_curve(ellipsoids, num_classes, min(there, _number_of_sets(there)), most, **options)
        return curve, curve.first(knee(curve.overlaps))

    def _origin(self) -> dict[str, Any]:
        reducer = (
            self.reducer
            if self.reducer is None or isinstance(self.reducer, str)
            else type(self.reducer_).__name__
        )
        return {
            "method": "overlap of class ellipsoids",
            "reducer": reducer,
            "dimensions": self.gaussians_.dimensions,
            "coverage": self.coverage,
            "seed": self.seed,
            "overlaps": [round(value, 6) for value in self.overlaps_.tolist()],
            "coverages": self.coverages_.tolist(),
        }

    # -- checks ---------------------------------------------------------------------------------

    def _samples(self, samples: int) -> int:
        if self.max_samples == "auto":
            return SAMPLES.get(self.reducer, samples) if isinstance(self.reducer, str) else samples
        return samples if self.max_samples is None else self.max_samples

    def _wanted(self) -> int:
        return 0 if self.num_sets == "auto" else self.num_sets

    def _check_parameters(self) -> None:
        for name, least in (("dimensions", 1), ("components", 1), ("max_points", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise RandomSetError(f"{name} is not a whole number above zero", got=value)
        if not 0 < self.coverage < 1:
            raise RandomSetError(
                "the coverage is out of range", got=self.coverage, expected="a number between 0 and 1"
            )
        if not self.floor > 0:
            raise RandomSetError("the floor of the variances is not above zero", got=self.floor)
        if self.max_samples not in ("auto", None) and not int(self.max_samples) > 0:
            raise RandomSetError("max_samples is not above zero", got=self.max_samples)
        if isinstance(self.reducer, str):
            check_reducer(self.reducer)
        elif self.reducer is not None and not hasattr(self.reducer, "fit_transform"):
            raise RandomSetError(
                "the reducer has no fit_transform",
                got=type(self.reducer).__name__,
                expected="a name, None or an object",
            )

    def _check_num_sets(self, num_classes: int) -> None:
        wanted = self.num_sets
        if wanted == "auto":
            return
        if not isinstance(wanted, (int, np.integer)) or isinstance(wanted, bool) or wanted < 0:
            raise BudgetError("num_sets is neither a number of sets nor 'auto'", got=wanted)
        if wanted > _number_of_sets(num_classes):
            raise BudgetError(
                "more sets are asked for than exist",
                got=f"{wanted} sets of {num_classes} classes",
                expected=f"at most 2^{num_classes} − {num_classes} − 1 = {_number_of_sets(num_classes)}",
                remedy='Ask for fewer, or num_sets="auto"; Budget.powerset gives all of them',
            )

    def _check_fitted(self) -> None:
        if not hasattr(self, "reducer_"):
            raise RandomSetError("the Budgeter is not fitted yet", remedy="Call fit(features, labels) first")


def _number_of_sets(num_classes: int) -> int:
    """How many sets of two or more classes there are."""
    return 2**num_classes - num_classes - 1


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - start
