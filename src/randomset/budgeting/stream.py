"""Budgets for streaming data and for several data sources (appendix E.8), and the test for drift."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from randomset._core.checks import encoded_labels
from randomset.belief.budget import Budget
from randomset.budgeting.gaussians import ClassGaussians, Floats
from randomset.budgeting.reduce import Reducer, reducer_name
from randomset.errors import RandomSetError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Change", "Streaming", "drift_p_values", "least_points", "level_of_look", "moments"]

_MAX_PAIRWISE = 6  # dimensions; with more, only squares are used


def moments(points: Floats, centre: Floats, scale: Floats) -> Floats:
    """Return each point (n × d) with the products of its standardised coordinates appended.

    With z = (x − centre) / scale, the products are all z_i z_j in up to six dimensions and the squares in
    more. A cluster that moves changes the mean of x; one that grows, shrinks or rotates changes the mean of
    the products.

    >>> moments(np.array([[1.0, 4.0]]), np.zeros(2), np.ones(2)).tolist()
    [[1.0, 4.0, 1.0, 4.0, 16.0]]
    """
    z = (points - centre) / scale
    if z.shape[1] > _MAX_PAIRWISE:
        return np.concatenate([points, z * z], axis=1)
    i, j = np.triu_indices(z.shape[1])
    return np.concatenate([points, z[:, i] * z[:, j]], axis=1)


def least_points(dimensions: int) -> int:
    """Return how many points per class the test needs in each sample: 8 per dimension.

    With fewer, skewed clusters raise many times more false alarms than the nominal level.
    """
    return 8 * dimensions


def drift_p_values(reference: ClassGaussians, recent: ClassGaussians) -> Floats:
    """Test for each class whether recent points have the same mean as the reference points (N).

    Hotelling's two-sample test for p-dimensional vectors, n = n₁ + n₂ in total, with pooled covariance S:

    T² = n₁n₂/n · (t̄₁ − t̄₂)ᵀ S⁻¹ (t̄₁ − t̄₂),    (n − p − 1) / ((n − 2) p) · T² ~ F(p, n − p − 1).

    Applied to `moments`, it tests means and covariances without assuming Gaussian clusters: only the sample
    means must be approximately Gaussian. A class with fewer than `least_points` in either sample is not
    tested and gets p-value 1.

    >>> draw = np.random.default_rng(0)
    >>> def points(shift):
    ...     return ClassGaussians.from_points(draw.normal(size=(200, 2)) + shift, np.zeros(200, int), 1)
    >>> p = drift_p_values(points(0.0), points(0.0)), drift_p_values(points(0.0), points(0.5))
    >>> bool(p[0][0] > 0.05), bool(p[1][0] < 1e-4)
    (True, True)
    """
    from scipy.stats import f

    p = reference.dimensions
    p_values = np.ones(reference.num_classes)
    tested = np.minimum(reference.count, recent.count) >= least_points(p)
    if not tested.any():
        return p_values
    first, second = reference.count[tested].astype(float), recent.count[tested].astype(float)
    total = first + second
    pooled = (reference.scatter[tested] + recent.scatter[tested]) / (total - 2)[:, None, None]
    scale = np.sqrt(np.maximum(np.diagonal(pooled, axis1=1, axis2=2), np.finfo(float).tiny))
    # the ridge keeps the correlation matrices of degenerate clusters invertible
    correlation = pooled / scale[:, :, None] / scale[:, None, :] + 1e-9 * np.eye(p)
    delta = (recent.mean[tested] - reference.mean[tested]) / scale
    distance = np.einsum("ni,ni->n", delta, np.linalg.solve(correlation, delta[..., None])[..., 0])
    squared = first * second / total * distance
    p_values[tested] = f.sf(squared * (total - p - 1) / ((total - 2) * p), p, total - p - 1)
    return p_values


def level_of_look(level: float, look: int, tests: int) -> float:
    """Return the level of each test at the k-th look: level / tests · 6 / (π² k²), which sums to `level`.

    >>> sum(level_of_look(0.01, k, 10) * 10 for k in range(1, 10_000)) < 0.01
    True
    """
    return level / tests * 6 / (math.pi * look) ** 2


# -- streams ---------------------------------------------------------------------------------------


_MAX_EMBEDDED = 5000


@dataclass(frozen=True)
class Change:
    """A recomputation of the budget: samples seen, reason, drifted classes, sets added and removed."""

    samples: int
    reason: str
    classes: tuple[str, ...]
    came: tuple[tuple[str, ...], ...]
    went: tuple[tuple[str, ...], ...]


class Streaming(ABC, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The incremental and distributed part of `Budgeter`."""

    reducer: str | Reducer | None
    components: int
    drift_level: float
    forget: bool
    budget_: Budget
    classes_: tuple[str, ...]
    gaussians_: ClassGaussians
    n_features_in_: int
    reducer_: Reducer | None
    samples_seen_: int
    changes_: list[Change]
    embedding_: Floats
    labels_: NDArray[np.int64]
    centre_: Floats
    scale_: Floats
    moments_: ClassGaussians
    reference_: ClassGaussians
    recent_: ClassGaussians
    looks_: int
    chosen_counts_: NDArray[np.int64]

    @abstractmethod
    def fit(self, features: Any, labels: Any = None) -> Self:
        """Fit the projection and choose the sets."""

    @abstractmethod
    def transform(self, features: Any) -> Floats:
        """Project features."""

    @abstractmethod
    def _features(self, features: Any, labels: Any) -> tuple[Any, Any]:
        """Convert (model, loader) to features and labels."""

    @abstractmethod
    def _choose(self, seconds: dict[str, float]) -> None:
        """Choose the sets from `gaussians_`."""

    @abstractmethod
    def _check_fitted(self) -> None:
        """Raise an error if there is no projection yet."""

    def partial_fit(self, features: Any, labels: Any = None) -> Self:
        """Add a batch of streaming data; recompute the sets only when a cluster has drifted.

        The first call fits the projection, which then stays fixed. Later calls update the Gaussians and test
        each class twice: the new batch against everything before it (sudden drift), and all points since the
        last choice against those before (slow drift), by `drift_p_values` at a level that `level_of_look`
        divides among tests, classes and looks. Unless `forget` is False, a class that drifted keeps only the
        batch or the points since the last choice. The sets are also recomputed when a class with few points
        has doubled. Each recomputation is appended to `changes_`.

        The points that the projection was fitted to are better separated than new ones. They serve as drift
        reference only if there were at least 20 times as many as features; otherwise the first new points do.
        """
        self._check_stream()
        if not hasattr(self, "n_features_in_"):
            return self.fit(features, labels)
        features, labels = self._features(features, labels)
        points = self.transform(features)
        codes, _ = encoded_labels(labels, len(points), self.classes_, at_least=1)
        if not hasattr(self, "moments_"):
            self._start_stream()
        new = moments(points, self.centre_, self.scale_)
        batch = ClassGaussians.from_points(new, codes, len(self.classes_))
        filling = self.reference_.count < least_points(batch.dimensions)
        before = self.reference_.merge(self.recent_)
        self.reference_ = self.reference_.merge(batch.only(filling))
        self.recent_ = self.recent_.merge(batch.only(~filling))
        self.moments_ = self.moments_.merge(batch)
        self.samples_seen_ += len(points)
        self.embedding_ = np.concatenate([self.embedding_, points])[-_MAX_EMBEDDED:]
        self.labels_ = np.concatenate([self.labels_, codes])[-_MAX_EMBEDDED:]
        self.looks_ += 1
        level = level_of_look(self.drift_level, self.looks_, 2 * len(self.classes_))
        sudden = drift_p_values(before, batch) < level
        slow = drift_p_values(self.reference_, self.recent_) < level
        count, dimensions = self.moments_.count, points.shape[1]
        known = getattr(self, "chosen_counts_", np.zeros_like(count))
        sparse = (known < 20 * (dimensions + 1)) & (count > dimensions) & (count >= 2 * known)
        if (sudden | slow).any():
            if self.forget:
                self.moments_ = self.moments_.replace(slow, self.recent_).replace(sudden, batch)
                self.reference_ = self.reference_.replace(slow, self.recent_).replace(sudden, batch)
                self.recent_ = self.recent_.only(~(sudden | slow))
            self._recompute("drift", sudden | slow)
        elif sparse.any() and (count > 0).sum() > 1:
            self._recompute("more data", sparse)
        return self

    def refresh(self) -> Self:
        """Recompute the sets from all data so far, whether or not there was drift."""
        self._check_fitted()
        self._recompute("requested", np.zeros(len(self.classes_), bool))
        return self

    def new_source(self) -> Self:
        """Return a Budgeter with the same projection and classes, but without data, for another source."""
        self._check_fitted()
        self._check_stream()
        if not hasattr(self, "moments_"):
            self._start_stream()
        other = clone(self)
        for name in ("reducer_", "n_features_in_", "classes_", "centre_", "scale_"):
            setattr(other, name, getattr(self, name))
        other.samples_seen_, other.changes_, other.looks_ = 0, [], 0
        dimensions = self.centre_.shape[0]
        other.embedding_, other.labels_ = np.zeros((0, dimensions)), np.zeros(0, np.int64)
        empty = ClassGaussians.empty(len(self.classes_), self.moments_.dimensions)
        other.moments_ = other.reference_ = other.recent_ = empty
        other.gaussians_ = empty.first(dimensions)
        return other

    def merge(self, *others: Streaming) -> Self:
        """Add the statistics of other sources, as if all data had been seen here, and recompute the sets."""
        self._check_fitted()
        if len({id(source) for source in (self, *others)}) < len(others) + 1:
            raise RandomSetError("a source would be counted twice", remedy="Pass each other source once")
        if not hasattr(self, "moments_"):
            self._start_stream()
        for other in others:
            self._check_same_space(other)
        for other in others:
            self.moments_ = self.moments_.merge(other.moments_)
            self.reference_ = self.reference_.merge(other.reference_).merge(other.recent_)
            self.samples_seen_ += other.samples_seen_
        self._recompute("merged sources", np.zeros(len(self.classes_), bool))
        return self

    def _start_stream(self) -> None:
        """Initialise the moments for the drift test from the fitted points."""
        points = self.embedding_
        self.centre_ = points.mean(0)
        self.scale_ = np.maximum(points.std(0), np.finfo(float).tiny)
        new = moments(points, self.centre_, self.scale_)
        self.moments_ = ClassGaussians.from_points(new, self.labels_, len(self.classes_))
        self.recent_ = ClassGaussians.empty(len(self.classes_), self.moments_.dimensions)
        unbiased = self.reducer_ is None or len(points) >= 20 * self.n_features_in_
        self.reference_, self.looks_ = self.moments_ if unbiased else self.recent_, 0

    def _recompute(self, reason: str, classes: NDArray[np.bool_]) -> None:
        """Recompute the sets, record the change, and restart the drift test."""
        before: tuple[tuple[str, ...], ...] = tuple(getattr(self, "budget_", ()))
        if not self.samples_seen_:
            raise RandomSetError(
                "there are no samples to choose sets from",
                got="a new source",
                remedy="Call partial_fit(features, labels) first",
            )
        if hasattr(self, "moments_"):
            self.gaussians_ = self.moments_.first(self.gaussians_.dimensions)
        self._choose({})
        names = tuple(self.classes_[c] for c in np.flatnonzero(classes).tolist())
        after = tuple(self.budget_)
        came = tuple(focal for focal in after if focal not in set(before))
        went = tuple(focal for focal in before if focal not in set(after))
        self.changes_.append(Change(self.samples_seen_, reason, names, came, went))
        if hasattr(self, "moments_"):
            self.reference_, self.looks_ = self.reference_.merge(self.recent_), 0
            self.recent_ = ClassGaussians.empty(self.moments_.num_classes, self.moments_.dimensions)

    def _check_stream(self) -> None:
        """Raise an error if the parameters do not support streaming."""
        builtin = self.reducer is None or isinstance(self.reducer, str)
        if reducer_name(self.reducer) == "tsne" if builtin else not hasattr(self.reducer, "transform"):
            raise RandomSetError(
                "the reducer cannot transform new data, which streaming requires",
                got=self.reducer,
                remedy='Use "pca", "lda", "autoencoder", "umap", None or an object with transform',
            )
        if self.components != 1:
            raise RandomSetError("streaming supports one component per class only", got=self.components)
        if not 0 < self.drift_level < 1:
            expected = "a number between 0 and 1"
            raise RandomSetError("drift_level is out of range", got=self.drift_level, expected=expected)

    def _check_same_space(self, other: Any) -> None:
        """Raise an error unless the other source has the same classes and projection."""
        if not isinstance(other, Streaming) or not hasattr(other, "classes_"):
            raise RandomSetError(
                "only fitted Budgeters can be merged", got=type(other).__name__, remedy="merge(a, b, …)"
            )
        if max(self.components, other.components) != 1:
            raise RandomSetError("merging supports one component per class only")
        if other.classes_ != self.classes_:
            raise RandomSetError(
                "the sources have different classes", got=other.classes_, expected=str(self.classes_)
            )
        probe = np.random.default_rng(0).normal(size=(4, self.n_features_in_))
        try:
            same = other.n_features_in_ == self.n_features_in_ and np.allclose(
                self.transform(probe), other.transform(probe)
            )
        except ValueError:
            same = False
        if not same or not (hasattr(other, "moments_") and np.array_equal(other.centre_, self.centre_)):
            raise RandomSetError(
                "the sources have different projections",
                remedy="Create every source with budgeter.new_source(), then call its partial_fit",
            )
