"""From many feature dimensions to few: one small protocol, and the reducers that users name."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from randomset._core.progress import progress_bar
from randomset.budgeting.autoencoder import Autoencoder
from randomset.budgeting.gaussians import Floats
from randomset.errors import MissingPackageError, RandomSetError

__all__ = [
    "REDUCERS",
    "TSNE",
    "UMAP",
    "Reducer",
    "check_reducer",
    "named_reducer",
    "reduced",
    "reducer_name",
    "stratified_sample",
]

REDUCERS = ("pca", "lda", "tsne", "umap", "autoencoder")
"""What may be named; any object with `fit_transform` serves as well."""

SAMPLES = {"tsne": 3_000, "umap": 10_000}
"""How many samples the slow reducers take by default."""


class Reducer(Protocol):
    """Features (n × F) in, points of few dimensions (n × d) out.

    A reducer that also has `transform(features)` can place new data, which streams need.
    """

    def fit_transform(self, features: Any, labels: Any = None) -> Any:
        """Learn from features and return their places."""
        ...


def named_reducer(
    name: str,
    dimensions: int,
    shape: tuple[int, int],
    num_classes: int,
    *,
    seed: int,
    progress: bool | None = None,
) -> Reducer:
    """Build a reducer for features of some shape (n × F).

    >>> named_reducer("pca", 3, (100, 64), 10, seed=0)
    PCA(n_components=3, random_state=0)
    """
    check_reducer(name)
    room = min(dimensions, *shape)
    if name == "pca":
        from sklearn.decomposition import PCA

        return PCA(room, random_state=seed)
    if name == "lda":
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        # a little shrinkage keeps constant and repeated features from making the problem singular
        components = min(room, num_classes - 1)
        return LinearDiscriminantAnalysis(solver="eigen", shrinkage=1e-3, n_components=components)
    if name == "tsne":
        return TSNE(dimensions, seed=seed, progress=progress)
    if name == "umap":
        return UMAP(dimensions, seed=seed, progress=progress)
    return Autoencoder(dimensions, seed=seed, progress=progress)


def reduced(
    reducer: str | Reducer | None,
    matrix: NDArray[Any],
    codes: NDArray[np.int64],
    dimensions: int,
    *,
    seed: int,
    progress: bool | None = None,
) -> tuple[Reducer | None, Floats]:
    """Fit a reducer, named or given, to features (n × F); return it and the places (n × d)."""
    from sklearn.base import clone

    name = reducer_name(reducer)
    if name is not None:
        shape, there = matrix.shape, len(np.unique(codes))
        fitted: Any = named_reducer(name, dimensions, shape, there, seed=seed, progress=progress)
        if name in ("pca", "lda"):
            matrix = matrix.astype(np.float64)  # an offset costs single precision its digits
    elif reducer is None or isinstance(reducer, str):
        return None, matrix.astype(np.float64)
    else:
        fitted = clone(reducer, safe=False)
    try:
        points = np.asarray(fitted.fit_transform(matrix, codes), np.float64)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        if isinstance(error, RandomSetError):
            raise
        got = f"{type(fitted).__name__}: {error}"
        raise RandomSetError("the reducer failed on these features", got=got) from error
    if points.ndim != 2 or len(points) != len(matrix) or not np.isfinite(points).all():
        raise RandomSetError(
            "the reducer did not give a finite place for each sample",
            got=f"shape {points.shape} from {type(fitted).__name__}",
            expected=f"({len(matrix)}, dimensions)",
        )
    return fitted, points


def reducer_name(reducer: Any) -> str | None:
    """Return the name of a named reducer however it is written, or None.

    >>> reducer_name("t-SNE"), reducer_name("none"), reducer_name(None)
    ('tsne', None, None)
    """
    name = reducer.lower().replace("-", "").replace("_", "") if isinstance(reducer, str) else "none"
    return None if name == "none" else name


def check_reducer(reducer: Any) -> None:
    """Refuse what is no reducer, unknown names and missing packages, before any work is done."""
    name = reducer_name(reducer)
    expected = "one of " + ", ".join(REDUCERS) + ", None, or an object with fit_transform"
    if name is None:
        if reducer is not None and not isinstance(reducer, str):
            if isinstance(reducer, type):
                remedy = f"Make one: {reducer.__name__}(…)"
                raise RandomSetError(
                    "the reducer is a class, not an object", got=reducer.__name__, remedy=remedy
                )
            if not hasattr(reducer, "fit_transform"):
                got = type(reducer).__name__
                raise RandomSetError("the reducer has no fit_transform", got=got, expected=expected)
    elif name not in REDUCERS:
        raise RandomSetError("unknown reducer", got=reducer, expected=expected)
    if name == "umap" and importlib.util.find_spec("umap") is None:
        raise MissingPackageError("umap-learn", "umap")


class TSNE:
    """t-SNE as in the paper: PCA to 50 dimensions, then Barnes-Hut.

    openTSNE does it where it is installed, scikit-learn (half as fast in 3-D) where not.

    >>> TSNE(2).fit_transform(np.random.default_rng(0).normal(size=(60, 8))).shape
    (60, 2)
    """

    _EARLY, _LATE, _TOLD_EVERY = 250, 500, 25

    def __init__(self, dimensions: int, *, seed: int = 0, progress: bool | None = None) -> None:
        self.dimensions, self.seed, self.progress = dimensions, seed, progress

    def fit_transform(self, features: Any, labels: Any = None) -> Floats:
        """Return the places of the features; labels are not used."""
        from sklearn.decomposition import PCA

        points = np.asarray(features)
        if min(points.shape) > 50:
            points = PCA(50, random_state=self.seed).fit_transform(points)
        perplexity = min(30.0, (len(points) - 1) / 3)
        if importlib.util.find_spec("openTSNE") is None:
            from sklearn.manifold import TSNE as Slow

            slow = Slow(self.dimensions, perplexity=perplexity, random_state=self.seed, n_jobs=-1)
            with progress_bar(f"t-SNE of {len(points)} points", None, self.progress):
                return slow.fit_transform(points).astype(np.float64)
        from openTSNE import TSNE as Fast

        title = f"t-SNE of {len(points)} points"
        with progress_bar(title, self._EARLY + self._LATE, self.progress) as advance:
            fast = Fast(
                self.dimensions,
                perplexity=perplexity,
                early_exaggeration_iter=self._EARLY,
                n_iter=self._LATE,
                negative_gradient_method="bh",
                neighbors="exact" if len(points) <= 10_000 else "auto",
                callbacks=lambda *_: advance(self._TOLD_EVERY),
                callbacks_every_iters=self._TOLD_EVERY,
                random_state=self.seed,
                n_jobs=-1,
            )
            return np.array(fast.fit(points), dtype=np.float64)


class UMAP:
    """UMAP with the paper's settings, five neighbours and minimum distance 0.9; it sees no labels.

    The first call in a process compiles for about a minute.
    """

    def __init__(self, dimensions: int, *, seed: int = 0, progress: bool | None = None) -> None:
        self.dimensions, self.seed, self.progress = dimensions, seed, progress

    def fit_transform(self, features: Any, labels: Any = None) -> Floats:
        """Return the places of the features; labels are not used."""
        from umap import UMAP as Original

        neighbours = min(5, len(features) - 1)
        # a fixed seed allows one thread only; to say so avoids a warning
        self.umap_ = Original(neighbours, self.dimensions, min_dist=0.9, random_state=self.seed, n_jobs=1)
        title = f"UMAP of {len(features)} points (the first in a process compiles for about a minute)"
        with _threads_kept(), progress_bar(title, None, self.progress), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Graph is not fully connected")  # separate clusters: no harm
            return np.asarray(self.umap_.fit_transform(features), np.float64)

    def transform(self, features: Any) -> Floats:
        """Return the places of new features among the old ones, which stay."""
        with _threads_kept(), progress_bar(f"UMAP of {len(features)} new points", None, self.progress):
            return np.asarray(self.umap_.transform(features), np.float64)


@contextmanager
def _threads_kept() -> Iterator[None]:
    """Keep torch's number of threads, which numba changes: a training that follows may crawl otherwise."""
    import torch

    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def stratified_sample(
    labels: NDArray[np.int64], size: int, at_least: int = 20, seed: int = 0
) -> NDArray[np.int64]:
    """Return places of about `size` samples: from each class its share, but `at_least` some (or all it has).

    >>> labels = np.repeat([0, 1], [990, 10])
    >>> np.bincount(labels[stratified_sample(labels, 100)]).tolist()
    [99, 10]
    """
    if size >= len(labels):
        return np.arange(len(labels))
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    shuffled = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    take = np.minimum(counts, np.maximum(np.rint(counts * (size / len(labels))), at_least)).astype(int)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(shuffled[rank < np.repeat(take, counts)])
