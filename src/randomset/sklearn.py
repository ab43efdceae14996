"""The scikit-learn face: RandomSetClassifier does the whole method inside."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from randomset._core.splits import stratified_parts
from randomset.belief.random_set import RandomSet
from randomset.data.arrays import images_from_array
from randomset.errors import LabelError, RandomSetError, ShapeError
from randomset.training import TrainConfig, train

if TYPE_CHECKING:
    from randomset.belief.budget import Budget
    from randomset.training.report import FitReport

__all__ = ["RandomSetClassifier"]


class RandomSetClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A random-set network as a scikit-learn classifier.

    `fit` chooses the budget (from the inputs themselves for tables, from the features of a first network for
    images), trains the random-set network and calibrates it on a part of the data that is held back.

    `sample_weight` weighs the loss. A weight of two is not the same as a sample that is there twice: that
    would change the batches and the part that is held back.

    Args:
        num_sets: K, how many sets beside the singletons, or "auto"; fewer where there are not so many.
        backbone: "auto" (an MLP for tables, `small_cnn` for small square images, a ResNet-18 for others),
            another name of `randomset train`, or a module that yields features, which is copied.
        hidden: widths of ReLU layers in the head.
        epochs: how often the data are seen; None leaves it to the recipe, 30 for "fast".
        batch_size: samples in a step; "auto" takes the recipe's 128, and fewer of fewer samples.
        learning_rate: the highest one; None leaves it to the recipe.
        alpha: the weight of the loss's term M_r.
        beta: the weight of the loss's term M_s.
        recipe: "fast", "fast-head" or "paper".
        reducer: what reduces the features for budgeting: "pca", "lda", "tsne", "umap" or "autoencoder".
        validation_fraction: the share of samples that is held back for calibration; 0 leaves it out.
        random_state: a seed, or a NumPy generator, makes the result repeatable.
        verbose: whether to show progress.
        trainer_options: further arguments of Lightning's `Trainer`.

    Attributes:
        classes_: the labels, sorted.
        network_: the trained `RandomSetNetwork`.
        budget_: its budget.
        history_: what was measured in each epoch.
        report_: the same, with the account of the calibration.
        n_features_in_: how many features a table has; of images, their height.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = RandomSetClassifier(epochs=5, random_state=0).fit(X, y)
    >>> classifier.predict(X[:2]), classifier.predict_random_set(X).credal_width.shape
    (array([0, 0]), torch.Size([150]))
    """

    def __init__(
        self,
        num_sets: int | Literal["auto"] = 20,
        *,
        backbone: str | nn.Module = "auto",
        hidden: Sequence[int] = (),
        epochs: int | None = None,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float | None = None,
        alpha: float = 1e-3,
        beta: float = 1e-3,
        recipe: str = "fast",
        reducer: str = "pca",
        validation_fraction: float = 0.1,
        random_state: Any = None,
        verbose: bool = False,
        trainer_options: dict[str, Any] | None = None,
    ) -> None:
        self.num_sets = num_sets
        self.backbone = backbone
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.beta = beta
        self.recipe = recipe
        self.reducer = reducer
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.verbose = verbose
        self.trainer_options = trainer_options

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RandomSetClassifier:
        """Train on a table (n × F) or images (n × H × W, with channels first or last); labels of any type."""
        X, y = validate_data(self, X, y, dtype=np.float32, allow_nd=True)
        check_classification_targets(y)
        if X.ndim > 4:
            raise ShapeError(
                "these are no images", got=f"shape {X.shape}", expected="(n × C × H × W) at most"
            )
        self.input_shape_ = X.shape[1:]
        weights = None
        if sample_weight is not None:
            given = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            X, y, given = X[given > 0], y[given > 0], given[given > 0]  # nothing may depend on the others
            weights = torch.from_numpy(given / given.mean())
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise LabelError(
                "the labels hold one class only",
                got=f"class {self.classes_[0]}",
                expected="two or more classes",
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rest, held = self._parts(codes, seed)
        inputs, labels = _as_inputs(X), torch.from_numpy(codes)
        config = TrainConfig(
            backbone=self.backbone if isinstance(self.backbone, str) else "auto",
            num_sets=self.num_sets,
            reducer=self.reducer,
            hidden=tuple(map(int, self.hidden)),
            alpha=self.alpha,
            beta=self.beta,
            recipe=self.recipe,
            epochs=self.epochs,
            batch_size=None if self.batch_size == "auto" else self.batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
        )
        with torch.random.fork_rng():
            result = train(
                config,
                inputs[rest],
                labels[rest],
                _names(self.classes_),
                (inputs[held], labels[held]) if len(held) else None,
                weights=None if weights is None else weights[rest],
                backbone=None if isinstance(self.backbone, str) else copy.deepcopy(self.backbone),
                progress=bool(self.verbose),
                **{"devices": 1, **(self.trainer_options or {})},
            )
        # Tables are predicted in double precision, so that an answer does not depend on its neighbours.
        self.network_ = result.model.double() if inputs.dim() == 2 else result.model
        assert result.fit is not None
        self.report_: FitReport = result.fit
        self.history_ = result.fit.history
        self.n_iter_ = len(self.history_)
        return self

    @property
    def budget_(self) -> Budget:
        """The sets of classes that the network has an output for."""
        check_is_fitted(self, "network_")
        return self.network_.budget

    def predict_random_set(self, X: Any) -> RandomSet:
        """Predict a `RandomSet`: masses, intervals and every other question."""
        check_is_fitted(self, "network_")
        X = validate_data(self, X, dtype=np.float32, allow_nd=True, reset=False)
        if X.shape[1:] != self.input_shape_:
            raise ShapeError(
                "the samples are of another shape than those of fit",
                got=X.shape[1:],
                expected=str(self.input_shape_),
            )
        return self.network_.predict(_as_inputs(X), progress=bool(self.verbose))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the pignistic probability of every class (n × N)."""
        betp = self.predict_random_set(X).pignistic.double()
        return (betp / betp.sum(1, keepdim=True)).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most likely class."""
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]

    def _parts(self, codes: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        share = self.validation_fraction
        if not 0 <= share < 1:
            raise RandomSetError("validation_fraction is no share", got=share, expected="0 ≤ share < 1")
        rest, held = stratified_parts(codes, [share], seed)
        enough = len(held) >= max(20, len(self.classes_))  # of fewer, no temperature can be learned
        return (rest, held) if enough else (np.arange(len(codes)), held[:0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags


def _as_inputs(array: NDArray[np.float32]) -> Tensor:
    """Bring images into the form (n × C × H × W)."""
    return torch.from_numpy(np.ascontiguousarray(array)) if array.ndim == 2 else images_from_array(array)


def _names(classes: NDArray[Any]) -> tuple[str, ...]:
    names = tuple(map(str, classes.tolist()))
    usable = len(set(names)) == len(names) and all(name.strip() for name in names)
    return names if usable else tuple(f"class {i}" for i in range(len(names)))
