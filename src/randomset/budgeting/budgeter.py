"""The `Budgeter` estimator: from features and labels to a budget."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np

from randomset._core.batches import progress_bar
from randomset._core.checks import checked_features, encoded_labels, is_number, is_whole
from randomset.belief.budget import Budget
from randomset.budgeting.features import features_and_labels
from randomset.budgeting.gaussians import (
    ClassGaussians,
    Ellipsoids,
    Floats,
    coverage_from_radius,
    radius_from_coverage,
)
from randomset.budgeting.overlap import (
    BudgetReport,
    Overlaps,
    check_num_sets,
    frame_of_sets,
    knee,
    number_of_sets,
    overlap_curve,
    table_of_sets,
    top_overlaps,
)
from randomset.budgeting.reduce import (
    SAMPLES,
    Reducer,
    check_reducer,
    fit_reducer,
    reducer_name,
    stratified_sample,
)
from randomset.budgeting.stream import Change, Streaming
from randomset.errors import RandomSetError, RandomSetWarning

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Budgeter"]


class Budgeter(Streaming):
    """Finds the K sets of classes whose regions in feature space overlap most (Algorithm 1).

    Features are reduced to a few dimensions, each class is represented by the ellipsoid that contains most
    of its Gaussian, and sets of two or more classes are ranked by

    overlap(A) = |∩_{c∈A} A^c| / |∪_{c∈A} A^c|.

    Sets of all sizes compete; the volumes are quasi-Monte Carlo estimates with known standard errors. If
    fewer than K sets overlap, the ellipsoids grow.

    Args:
        num_sets: K, the number of sets beyond the singletons, or "auto" (see `randomset.budgeting.knee`).
        reducer: "pca", "lda", "tsne", "umap", "autoencoder", None for features that already have few
            dimensions, or any object with `fit_transform(features, labels)`.
        dimensions: number of dimensions that a built-in reducer keeps.
        coverage: share of a class's Gaussian inside its ellipsoid.
        grow: whether the ellipsoids may grow beyond `coverage` to reach K sets.
        components: Gaussians per class; with several, a class is the union of their ellipsoids.
        floor: added to each variance, in units of the mean variance of all reduced features.
        max_samples: number of samples (stratified, at least 20 per class) used to fit the reducer; "auto"
            uses all, but 3,000 for t-SNE and 10,000 for UMAP.
        max_points: upper bound on the Monte Carlo points in all ellipsoids together; fewer are used where
            many ellipsoids overlap.
        classes: class names in label order, or the number of classes.
        drift_level: for `partial_fit`: probability of a false alarm between two recomputations.
        forget: for `partial_fit`: whether a class that drifted discards its earlier samples.
        layer: for (model, loader): name of the module whose output to use as features instead of the input
            of the last linear layer.
        seed: random seed.
        progress: whether to show progress bars; None shows them on a terminal.

    Attributes:
        budget_: the `Budget`.
        overlaps_: overlap of each of the K sets, in the order of the budget; `errors_` holds the standard
            errors, `coverages_` the coverage at which each set was found.
        ranking_: the same, best first; see also `table()` and `to_frame()`.
        curve_: for "auto", the overlap curve.
        ellipsoids_: class regions at `coverage`; `gaussians_` holds the underlying statistics.
        embedding_: reduced features of the samples at `sample_indices_`, with their `labels_`; in a
            stream, the latest 5,000.
        reducer_: the fitted reducer.
        report_: a `BudgetReport` with sampling, timing and warnings.
        changes_: in a stream, one `Change` per recomputation of the sets.

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
        classes: SupportsIndex | Sequence[str] | None = None,
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
        """Choose the sets from features (n × F) and labels, or from a model and its data.

        Call as `fit(features, labels)`, `fit((model, loader))` or `fit(model, loader)`; a loader of (inputs,
        labels) needs no separate labels.
        """
        self._check_parameters()
        seconds: dict[str, float] = {}
        with _timed(seconds, "features"):
            features, labels = self._features(features, labels)
            matrix = checked_features(features)
            samples = len(matrix)
            codes, names = encoded_labels(labels, len(matrix), self.classes)
            check_num_sets(self.num_sets, len(names))
            if not (matrix != matrix[0]).any():
                raise RandomSetError(
                    "features are constant: all samples are identical",
                    remedy="Check that the features come from the right layer of a trained model",
                )
        with _timed(seconds, "reduction"):
            sample = stratified_sample(codes, self._samples(samples), seed=self.seed)
            if len(sample) < samples:
                matrix, codes = matrix[sample], codes[sample]
            reducer, points = fit_reducer(
                self.reducer, matrix, codes, self.dimensions, seed=self.seed, progress=self.progress
            )
        with _timed(seconds, "Gaussians"):
            gaussians = ClassGaussians.from_points(points, codes, len(names))
        self.reducer_, self.embedding_, self.gaussians_ = reducer, points, gaussians
        self.labels_, self.sample_indices_ = codes, sample
        self.n_features_in_, self.classes_ = matrix.shape[1], names
        self.samples_seen_ = samples
        self.changes_: list[Change] = []
        self.__dict__.pop("moments_", None)  # ends any previous stream
        self._choose(seconds)
        return self

    def table(self, most: int | None = None) -> str:
        """Return a text table of the sets, best first: overlap, standard error, coverage."""
        self._check_chosen()
        return table_of_sets(self.ranking_, self.classes_, self.gaussians_.dimensions, most)

    def to_frame(self) -> DataFrame:
        """Return the sets as a pandas DataFrame, best first."""
        self._check_chosen()
        return frame_of_sets(self.ranking_, self.classes_, self.gaussians_.dimensions)

    def transform(self, features: Any) -> Floats:
        """Reduce new features, if the reducer supports new data."""
        self._check_fitted()
        matrix = checked_features(features, self.n_features_in_)
        if self.reducer_ is None:
            return matrix.astype(np.float64)
        transform = getattr(self.reducer_, "transform", None)
        if transform is None:
            raise RandomSetError(
                "the reducer cannot transform new data",
                got=type(self.reducer_).__name__,
                remedy='Use "pca", "lda", "autoencoder" or "umap"',
            )
        return np.asarray(transform(matrix), np.float64)

    def _features(self, features: Any, labels: Any) -> tuple[Any, Any]:
        return features_and_labels(features, labels, layer=self.layer, progress=self.progress)

    def _choose(self, seconds: dict[str, float]) -> None:
        """Compute the budget from the Gaussians."""
        gaussians, names = self.gaussians_, self.classes_
        floor = self.floor * gaussians.spread()
        if not floor > 0:
            got = f"mean variance {gaussians.spread():.3g}"
            raise RandomSetError("the reduced features are constant", got=got)
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
        self.report_ = BudgetReport.describe(self, chosen, radius, seconds)
        for note in self.report_.warnings:
            warnings.warn(note, RandomSetWarning, stacklevel=3)
        budget = Budget.from_sets(chosen.sets, names)
        rank = {focal: i for i, focal in enumerate(chosen.sets)}
        order = [rank[focal] for focal in budget.sets[budget.num_classes :]]
        self.overlaps_, self.errors_ = chosen.overlaps[order], chosen.errors[order]
        self.coverages_, self._radii = np.array(coverages)[order], chosen.radii[order]
        self.budget_ = budget.with_origin(self._origin())
        self.chosen_counts_ = gaussians.count

    def _overlaps(self, ellipsoids: Ellipsoids, num_classes: int) -> tuple[Overlaps | None, Overlaps]:
        options: dict[str, Any] = {"grow": self.grow, "max_points": self.max_points, "seed": self.seed}
        present = len(np.unique(ellipsoids.class_of))
        available = number_of_sets(present)
        if self.num_sets != "auto":
            return None, top_overlaps(ellipsoids, num_classes, min(self.num_sets, available), **options)
        most = min(max(100, 4 * num_classes), available)
        curve = overlap_curve(ellipsoids, num_classes, min(present, available), most, **options)
        return curve, curve.cut(knee(curve.overlaps))

    def _origin(self) -> dict[str, Any]:
        named = isinstance(self.reducer, str) or self.reducer is None
        return {
            "method": "overlap of class ellipsoids",
            "num_sets": self.num_sets if self.num_sets == "auto" else int(self.num_sets),
            "reducer": reducer_name(self.reducer) if named else type(self.reducer_).__name__,
            "dimensions": self.gaussians_.dimensions,
            "coverage": self.coverage,
            "grow": self.grow,
            "components": self.components,
            "samples": self.samples_seen_,
            "seed": self.seed,
            "overlaps": [round(value, 6) for value in self.overlaps_.tolist()],
            "coverages": [round(value, 9) for value in self.coverages_.tolist()],
            "radii": [round(value, 4) for value in self._radii.tolist()],
        }

    def _samples(self, samples: int) -> int:
        if self.max_samples == "auto":
            return SAMPLES.get(reducer_name(self.reducer) or "", samples)
        return samples if self.max_samples is None else self.max_samples

    def _check_parameters(self) -> None:
        value: Any
        for name in ("dimensions", "components", "max_points"):
            value = getattr(self, name)
            if not is_whole(value, 1):
                raise RandomSetError(f"{name} must be a positive integer", got=value)
        for name, low, high in (("coverage", 0, 1), ("floor", 0, np.inf)):
            value = getattr(self, name)
            if not is_number(value) or not low < value < high:
                expected = f"a number between {low} and {high}"
                raise RandomSetError(f"{name} is out of range", got=value, expected=expected)
        if not is_whole(self.seed, 0) or self.seed >= 2**32:
            raise RandomSetError("seed must be an integer from 0 to 2³² − 1", got=repr(self.seed))
        if self.max_samples not in ("auto", None) and not is_whole(self.max_samples, 1):
            raise RandomSetError(
                "max_samples must be a positive integer, 'auto' or None", got=self.max_samples
            )
        check_reducer(self.reducer)

    def _check_fitted(self) -> None:
        if not hasattr(self, "n_features_in_"):
            raise RandomSetError("the Budgeter is not fitted", remedy="Call fit(features, labels) first")

    def _check_chosen(self) -> None:
        self._check_fitted()
        if not hasattr(self, "ranking_"):
            raise RandomSetError(
                "no sets have been chosen",
                got=f"a new source with {self.samples_seen_} samples",
                remedy="Call partial_fit(features, labels), then refresh() if there are only a few samples",
            )


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - start
