"""Budgets that follow a stream of data, or several sources (appendix E.8)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from randomset.belief.budget import Budget
from randomset.budgeting.drift import drift_p_values, level_of_look, moments
from randomset.budgeting.gaussians import ClassGaussians, Floats
from randomset.budgeting.inputs import encoded_labels
from randomset.errors import RandomSetError

if TYPE_CHECKING:
    from typing_extensions import Self

    from randomset.budgeting.reduce import Reducer

__all__ = ["Change", "Streaming", "sets_that_changed"]

_KEPT = 5000


@dataclass(frozen=True)
class Change:
    """A recomputation of the budget: after how many samples, why, and which sets came and went."""

    samples: int
    reason: str
    classes: tuple[str, ...]
    came: tuple[tuple[str, ...], ...]
    went: tuple[tuple[str, ...], ...]


def sets_that_changed(
    before: Budget | None, after: Budget
) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
    """Return the sets that came and those that went."""
    old = set() if before is None else set(before)
    new = set(after)
    return (
        tuple(focal for focal in after if focal not in old),
        tuple(focal for focal in before or () if focal not in new),
    )


class Streaming(ABC, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What a `Budgeter` does with data that keep coming, or that lie in several places."""

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

    @abstractmethod
    def fit(self, features: Any, labels: Any = None) -> Self:
        """Fit the projection and choose the sets."""

    @abstractmethod
    def transform(self, features: Any) -> Floats:
        """Place features in the projection."""

    @abstractmethod
    def _features(self, features: Any, labels: Any) -> tuple[Any, Any]:
        """Turn (model, loader) into features and labels."""

    @abstractmethod
    def _choose(self, seconds: dict[str, float]) -> None:
        """Choose the sets from `gaussians_`."""

    @abstractmethod
    def _check_fitted(self) -> None:
        """Refuse to work without a projection."""

    def partial_fit(self, features: Any, labels: Any = None) -> Self:
        """Add data of a stream; choose the sets anew only when a cluster has drifted.

        The first call fits the projection, which then stays. Later calls add to the running Gaussians and
        test each class twice: the new batch against all before it, which sees a sudden change, and all points
        since the last choice against those that it used, which sees a slow one (`drift_p_values`, at a level
        that `level_of_look` shares among tests, classes and looks). When a class has drifted, or has points
        enough
        for a Gaussian for the first time, the overlaps are computed again, and `changes_` gets a new entry. A
        class that drifted keeps only the batch, or the points since the last choice, unless `forget` is off.
        """
        if not hasattr(self, "reducer_"):
            self._check_stream()
            return self.fit(features, labels)
        self._check_stream()
        features, labels = self._features(features, labels)
        points = self.transform(features)
        codes, _ = encoded_labels(labels, len(points), self.classes_, at_least=1)
        if not hasattr(self, "moments_"):
            self._follow(self.embedding_, self.labels_)
        new = moments(points, self.centre_, self.scale_)
        batch = ClassGaussians.from_points(new, codes, len(self.classes_))
        before = self.moments_
        self.moments_, self.recent_ = before.merge(batch), self.recent_.merge(batch)
        self._seen(points, codes)
        self.looks_ += 1
        level = level_of_look(self.drift_level, self.looks_, 2 * len(self.classes_))
        sudden = drift_p_values(before, batch) < level
        slow = drift_p_values(self.reference_, self.recent_) < level
        if (sudden | slow).any():
            if self.forget:
                self.moments_ = self.moments_.replace(slow, self.recent_).replace(sudden, batch)
            self._choose_again("drift", sudden | slow)
        else:
            few = self.gaussians_.has_few_points
            self.gaussians_ = self.moments_.first(points.shape[1])
            arrived = few & ~self.gaussians_.has_few_points
            if arrived.any() and (self.gaussians_.count > 0).sum() > 1:
                self._choose_again("new classes", arrived)
        return self

    def refresh(self) -> Self:
        """Choose the sets anew from all that came, drift or not."""
        self._check_fitted()
        self._choose_again("asked for", np.zeros(len(self.classes_), bool))
        return self

    def new_source(self) -> Self:
        """Return a Budgeter with the same projection and classes and no data, for another source of data."""
        self._check_fitted()
        self._check_stream()
        if not hasattr(self, "moments_"):
            self._follow(self.embedding_, self.labels_)
        other = clone(self)
        other.reducer_, other.n_features_in_, other.classes_ = (
            self.reducer_,
            self.n_features_in_,
            self.classes_,
        )
        other.samples_seen_, other.changes_ = 0, []
        other.centre_, other.scale_ = self.centre_, self.scale_
        dimensions = self.gaussians_.dimensions
        other.embedding_, other.labels_ = np.zeros((0, dimensions)), np.zeros(0, np.int64)
        other.gaussians_ = ClassGaussians.empty(len(self.classes_), dimensions)
        other.moments_ = ClassGaussians.empty(len(self.classes_), self.moments_.dimensions)
        other._remember()
        return other

    def merge(self, *others: Streaming) -> Self:
        """Add the Gaussians of other sources, as if all their data had come here; choose the sets anew."""
        self._check_fitted()
        if len({id(source) for source in (self, *others)}) < len(others) + 1:
            raise RandomSetError("a source would be counted twice", remedy="Name every other source once")
        if not hasattr(self, "moments_"):
            self._follow(self.embedding_, self.labels_)
        for other in others:
            self._check_same_space(other)
        for other in others:
            self.moments_ = self.moments_.merge(other.moments_)
            self.samples_seen_ += other.samples_seen_
        self._choose_again("merged sources", np.zeros(len(self.classes_), bool))
        return self

    def _follow(self, points: Floats, codes: NDArray[np.int64]) -> None:
        """Start to keep the moments that the drift test needs, from the points of the fit."""
        self.centre_ = points.mean(0)
        self.scale_ = np.maximum(points.std(0), np.finfo(float).tiny)
        new = moments(points, self.centre_, self.scale_)
        self.moments_ = ClassGaussians.from_points(new, codes, len(self.classes_))
        self._remember()

    def _seen(self, points: Floats, codes: NDArray[np.int64]) -> None:
        """Count new points, and keep the latest of all for pictures."""
        self.samples_seen_ += len(points)
        self.embedding_ = np.concatenate([self.embedding_, points])[-_KEPT:]
        self.labels_ = np.concatenate([self.labels_, codes])[-_KEPT:]

    def _choose_again(self, reason: str, classes: NDArray[np.bool_]) -> None:
        """Compute the overlaps anew and note what changed."""
        before = getattr(self, "budget_", None)
        if hasattr(self, "moments_"):
            self.gaussians_ = self.moments_.first(self.gaussians_.dimensions)
            self._remember()
        self._choose({})
        names = tuple(self.classes_[c] for c in np.flatnonzero(classes).tolist())
        came, went = sets_that_changed(before, self.budget_)
        self.changes_.append(Change(self.samples_seen_, reason, names, came, went))

    def _remember(self) -> None:
        """Keep the moments that the sets belong to, to see drift from."""
        self.reference_, self.looks_ = self.moments_, 0
        self.recent_ = ClassGaussians.empty(self.moments_.num_classes, self.moments_.dimensions)

    def _check_stream(self) -> None:
        """Refuse what cannot follow a stream, before any work."""
        fixed = self.reducer is None or (
            self.reducer in ("pca", "lda", "umap", "autoencoder")
            if isinstance(self.reducer, str)
            else hasattr(self.reducer, "transform")
        )
        if not fixed:
            raise RandomSetError(
                "the reducer cannot place new data, as a stream needs",
                got=self.reducer,
                remedy='Use "pca", "lda", "autoencoder", "umap", None or an object with transform',
            )
        if self.components != 1:
            raise RandomSetError(
                "a stream follows one Gaussian for each class", got=f"{self.components} components"
            )
        if not 0 < self.drift_level < 1:
            raise RandomSetError(
                "the drift level is out of range", got=self.drift_level, expected="a number in (0, 1)"
            )

    def _check_same_space(self, other: Any) -> None:
        """Refuse Gaussians of other classes or in another projection."""
        if not isinstance(other, Streaming) or not hasattr(other, "classes_"):
            raise RandomSetError(
                "only fitted Budgeters can be merged", got=type(other).__name__, remedy="merge(one, two, …)"
            )
        if self.components != 1 or other.components != 1:
            raise RandomSetError(
                "only single Gaussians can be merged", got="several components for each class"
            )
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
                "the sources live in different projections",
                remedy="Give every source the same: other = budgeter.new_source(); other.partial_fit(…)",
            )
