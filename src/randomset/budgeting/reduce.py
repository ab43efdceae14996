"""Dimensionality reduction: the `Reducer` protocol and the built-in reducers."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from randomset._core.batches import progress_bar
from randomset.budgeting.gaussians import Floats
from randomset.errors import MissingPackageError, RandomSetError

__all__ = [
    "REDUCERS",
    "TSNE",
    "UMAP",
    "Autoencoder",
    "Reducer",
    "check_reducer",
    "fit_reducer",
    "named_reducer",
    "reducer_name",
    "stratified_sample",
]

REDUCERS = ("pca", "lda", "tsne", "umap", "autoencoder")
"""Names of the built-in reducers; any object with `fit_transform` works as well."""

SAMPLES = {"tsne": 3_000, "umap": 10_000}
"""Default sample size of the slow reducers."""

_AT_LEAST = 20  # samples per class in a stratified sample


class Reducer(Protocol):
    """Maps features (n × F) to points of few dimensions (n × d).

    Streams require a reducer with `transform(features)` for new data.
    """

    def fit_transform(self, features: Any, labels: Any = None) -> Any:
        """Fit to features and return their embedding."""
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
    """Build a built-in reducer for features of the given shape (n × F).

    >>> named_reducer("pca", 3, (100, 64), 10, seed=0)
    PCA(n_components=3, random_state=0)
    """
    check_reducer(name)
    limit = min(dimensions, *shape)
    if name == "pca":
        from sklearn.decomposition import PCA

        return PCA(limit, random_state=seed)
    if name == "lda":
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        components = min(limit, num_classes - 1)
        # a little shrinkage avoids singular matrices from constant or repeated features
        return LinearDiscriminantAnalysis(solver="eigen", shrinkage=1e-3, n_components=components)
    if name == "tsne":
        return TSNE(dimensions, seed=seed, progress=progress)
    if name == "umap":
        return UMAP(dimensions, seed=seed, progress=progress)
    return Autoencoder(dimensions, seed=seed, progress=progress)


def fit_reducer(
    reducer: str | Reducer | None,
    matrix: NDArray[Any],
    codes: NDArray[np.int64],
    dimensions: int,
    *,
    seed: int,
    progress: bool | None = None,
) -> tuple[Reducer | None, Floats]:
    """Fit a reducer to features (n × F); return it and the embedding (n × d)."""
    from sklearn.base import clone

    name = reducer_name(reducer)
    if name is not None:
        present = len(np.unique(codes))
        fitted: Any = named_reducer(name, dimensions, matrix.shape, present, seed=seed, progress=progress)
        if name in ("pca", "lda"):
            matrix = matrix.astype(np.float64)  # float32 loses precision to a large offset
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
            "the reducer must return one finite point per sample",
            got=f"shape {points.shape} from {type(fitted).__name__}",
            expected=f"({len(matrix)}, dimensions)",
        )
    return fitted, points


def reducer_name(reducer: Any) -> str | None:
    """Return the normalised name of a built-in reducer, or None.

    >>> reducer_name("t-SNE"), reducer_name("none"), reducer_name(None)
    ('tsne', None, None)
    """
    name = reducer.lower().replace("-", "").replace("_", "") if isinstance(reducer, str) else "none"
    return None if name == "none" else name


def check_reducer(reducer: Any) -> None:
    """Raise an error for unknown names, objects that are not reducers, and missing packages."""
    name = reducer_name(reducer)
    expected = f"one of {', '.join(REDUCERS)}, None, or an object with fit_transform"
    if isinstance(reducer, type):
        got = reducer.__name__
        raise RandomSetError("reducer is a class, not an instance", got=got, remedy=f"Pass {got}(…)")
    if not (reducer is None or isinstance(reducer, str) or hasattr(reducer, "fit_transform")):
        got = type(reducer).__name__
        raise RandomSetError("reducer has no fit_transform method", got=got, expected=expected)
    if name not in (None, *REDUCERS):
        raise RandomSetError("unknown reducer", got=reducer, expected=expected)
    if name == "umap" and importlib.util.find_spec("umap") is None:
        raise MissingPackageError("umap-learn", "umap")


class TSNE:
    """t-SNE as in the paper: PCA to 50 dimensions, then Barnes-Hut.

    Uses openTSNE if it is installed, otherwise scikit-learn (half as fast in 3-D).

    >>> TSNE(2).fit_transform(np.random.default_rng(0).normal(size=(60, 8))).shape
    (60, 2)
    """

    _EARLY, _LATE, _UPDATE_EVERY = 250, 500, 25

    def __init__(self, dimensions: int, *, seed: int = 0, progress: bool | None = None) -> None:
        self.dimensions, self.seed, self.progress = dimensions, seed, progress

    def fit_transform(self, features: Any, labels: Any = None) -> Floats:
        """Return the embedding of the features; labels are ignored."""
        from sklearn.decomposition import PCA

        points = np.asarray(features)
        if min(points.shape) > 50:
            points = PCA(50, random_state=self.seed).fit_transform(points)
        perplexity = min(30.0, (len(points) - 1) / 3)
        title = f"t-SNE of {len(points)} points"
        if importlib.util.find_spec("openTSNE") is None:
            from sklearn.manifold import TSNE as SklearnTSNE

            model = SklearnTSNE(self.dimensions, perplexity=perplexity, random_state=self.seed, n_jobs=-1)
            with progress_bar(title, None, self.progress):
                return model.fit_transform(points).astype(np.float64)
        from openTSNE import TSNE as OpenTSNE

        with progress_bar(title, self._EARLY + self._LATE, self.progress) as advance:
            model = OpenTSNE(
                self.dimensions,
                perplexity=perplexity,
                early_exaggeration_iter=self._EARLY,
                n_iter=self._LATE,
                negative_gradient_method="bh",
                neighbors="exact" if len(points) <= 10_000 else "auto",
                callbacks=lambda *_: advance(self._UPDATE_EVERY),
                callbacks_every_iters=self._UPDATE_EVERY,
                random_state=self.seed,
                n_jobs=-1,
            )
            return np.array(model.fit(points), dtype=np.float64)


class UMAP:
    """Unsupervised UMAP with the paper's settings: five neighbours and minimum distance 0.9.

    The first call in a process spends about a minute compiling.
    """

    def __init__(self, dimensions: int, *, seed: int = 0, progress: bool | None = None) -> None:
        self.dimensions, self.seed, self.progress = dimensions, seed, progress

    def fit_transform(self, features: Any, labels: Any = None) -> Floats:
        """Return the embedding of the features; labels are ignored."""
        from umap import UMAP as UMAPLearn

        neighbours = min(5, len(features) - 1)
        # a fixed seed implies one thread; n_jobs=1 avoids the warning about it
        self.umap_ = UMAPLearn(neighbours, self.dimensions, min_dist=0.9, random_state=self.seed, n_jobs=1)
        title = f"UMAP of {len(features)} points (the first call compiles for about a minute)"
        with _preserved_threads(), progress_bar(title, None, self.progress), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Graph is not fully connected")  # harmless
            return np.asarray(self.umap_.fit_transform(features), np.float64)

    def transform(self, features: Any) -> Floats:
        """Embed new features without moving the fitted ones."""
        with _preserved_threads(), progress_bar(f"UMAP of {len(features)} new points", None, self.progress):
            return np.asarray(self.umap_.transform(features), np.float64)


@contextmanager
def _preserved_threads() -> Iterator[None]:
    """Restore torch's number of threads, which numba changes for the whole process."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def stratified_sample(labels: NDArray[np.int64], size: int, seed: int = 0) -> NDArray[np.int64]:
    """Return indices of about `size` samples in proportion to the classes, but at least 20 (or all) of each.

    >>> labels = np.repeat([0, 1], [990, 10])
    >>> np.bincount(labels[stratified_sample(labels, 100)]).tolist()
    [99, 10]
    """
    if size >= len(labels):
        return np.arange(len(labels))
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    shuffled = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    take = np.minimum(counts, np.maximum(np.rint(counts * (size / len(labels))), _AT_LEAST)).astype(int)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(shuffled[rank < np.repeat(take, counts)])


class Autoencoder:
    """An encoder and a decoder with one hidden layer each, trained to reconstruct features.

    Features are centred and divided by one common standard deviation, which keeps their relative scales.
    The number of training steps does not depend on the number of samples.

    >>> points = np.random.default_rng(0).normal(size=(200, 8))
    >>> coder = Autoencoder(2, steps=20)
    >>> codes = coder.fit_transform(points)
    >>> codes.shape, bool(np.allclose(coder.transform(points[:5]), codes[:5], atol=1e-5))
    ((200, 2), True)
    """

    def __init__(
        self,
        dimensions: int = 3,
        *,
        hidden: int = 128,
        steps: int = 1500,
        batch_size: int = 256,
        learning_rate: float = 2e-3,
        seed: int = 0,
        progress: bool | None = None,
    ) -> None:
        self.dimensions, self.hidden, self.steps = dimensions, hidden, steps
        self.batch_size, self.learning_rate = batch_size, learning_rate
        self.seed, self.progress = seed, progress

    def fit_transform(self, features: Any, labels: Any = None) -> Floats:
        """Train on features (n × F) and return their codes (n × d); labels are ignored."""
        x = torch.as_tensor(np.asarray(features), dtype=torch.float32)
        self.centre_, self.scale_ = x.mean(0), x.std().clamp_min(1e-12)
        x = (x - self.centre_) / self.scale_
        inputs, hidden = x.shape[1], self.hidden
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(self.seed)
            self.encoder_ = nn.Sequential(
                nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, self.dimensions)
            )
            decoder = nn.Sequential(nn.Linear(self.dimensions, hidden), nn.ReLU(), nn.Linear(hidden, inputs))
            parameters = [*self.encoder_.parameters(), *decoder.parameters()]
            optimiser = torch.optim.Adam(parameters, self.learning_rate)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.steps)
            with progress_bar("training the autoencoder", self.steps, self.progress) as advance:
                for _ in range(self.steps):
                    batch = x[torch.randint(len(x), (self.batch_size,))]
                    loss = nn.functional.mse_loss(decoder(self.encoder_(batch)), batch)
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                    schedule.step()
                    advance(1)
        return self._encode(x)

    def transform(self, features: Any) -> Floats:
        """Return the codes of new features."""
        if not hasattr(self, "encoder_"):
            raise RandomSetError("the autoencoder is not trained", remedy="Call fit_transform first")
        x = torch.as_tensor(np.asarray(features), dtype=torch.float32)
        return self._encode((x - self.centre_) / self.scale_)

    def _encode(self, x: Tensor) -> Floats:
        with torch.no_grad():
            return torch.cat([self.encoder_(part) for part in x.split(8192)]).double().numpy()
