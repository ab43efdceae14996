"""RandomSetClassifier: random-set networks as a scikit-learn estimator."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from randomset._core.checks import ENOUGH, enough, stratified_parts
from randomset.belief.random_set import RandomSet
from randomset.data.arrays import images_from_array
from randomset.data.sources import mask_from_rows
from randomset.errors import LabelError, RandomSetError, RandomSetWarning, ShapeError
from randomset.models.prediction import Threshold
from randomset.models.reliability import check_reliability
from randomset.training import TrainConfig, train
from randomset.training.balance import checked_class_weight

if TYPE_CHECKING:
    from randomset.belief.budget import Budget
    from randomset.training.resuming import FitReport

__all__ = ["RandomSetClassifier"]

_SAME = (  # settings with the same name in `TrainConfig`
    "num_sets", "reducer", "alpha", "beta", "recipe", "epochs", "learning_rate", "sampling",
    "augment", "ema",
)  # fmt: skip


class RandomSetClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A random-set network as a scikit-learn classifier.

    `fit` trains a softmax network for half of the epochs, chooses the budget (from the inputs themselves for
    tables, from its features for images), trains the network with sets for the other half, and calibrates it
    on held-out data.

    `sample_weight` weights the loss. A weight of two is not equivalent to a repeated sample, which would
    change the batches and the held-out data.

    Args:
        num_sets: K, the number of sets besides the singletons, or "auto"; fewer if there are not that many.
        backbone: "auto" (an MLP for tables, `small_cnn` for small square images, a ResNet-18 for others),
            another name that `randomset train` takes, or a module that returns features, which is copied.
        hidden: widths of ReLU layers in the head.
        epochs: number of epochs; by default, the recipe's, 30 for "fast".
        batch_size: samples per step; "auto" uses the recipe's 128, or less for small data sets.
        learning_rate: the maximum learning rate; by default, the recipe's.
        alpha: weight of the loss term M_r.
        beta: weight of the loss term M_s.
        recipe: "fast", "fast-head", "speed" or "paper".
        class_weight: None, "balanced" (inversely proportional to the numbers of training samples), or a
            dictionary of labels and their weights in the loss; other labels weigh 1.
        sampling: "balanced" draws each class equally often; by default, every sample once per epoch.
        augment: augmentation of images by name, such as "photos" or "flip+mixup"; see `randomset.Recipe`.
        ema: decay of a moving average of the weights, such as 0.999, to predict with.
        reliability: how predictions for inputs unlike the training data are discounted, which needs 20 or
            more held-out samples: "auto" (with a warning if there are too few), "neighbours", "gaussians" or
            "none"; see `randomset.models.Reliability`.
        reducer: how features are reduced for budgeting: "pca", "lda", "tsne", "umap" or "autoencoder".
        validation_fraction: share of samples held out for calibration, for the reliability and for the
            threshold between known and unknown inputs. These need 20 samples, which are held out if they are
            at most a quarter of all. 0 skips all three.
        keep: share of the held-out samples that count as known: `predict_known` rejects inputs whose entropy
            is above that of these samples.
        random_state: a seed or a NumPy generator, for reproducible results.
        verbose: whether to show progress.
        trainer_options: further arguments of Lightning's `Trainer`.

    Attributes:
        classes_: the labels, sorted.
        network_: the trained `RandomSetNetwork`.
        budget_: its budget.
        history_: metrics of each epoch.
        report_: the history and the calibration report.
        threshold_: the `Threshold` of `predict_known`; None if there were too few samples to hold some out.
        n_features_in_: number of features of a table, or the height of images.

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
        class_weight: Literal["balanced"] | dict[Any, float] | None = None,
        sampling: Literal["uniform", "balanced"] | None = None,
        augment: str | None = None,
        ema: float | None = None,
        reducer: str = "pca",
        reliability: str = "auto",
        validation_fraction: float = 0.1,
        keep: float = 0.95,
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
        self.class_weight = class_weight
        self.sampling = sampling
        self.augment = augment
        self.ema = ema
        self.reducer = reducer
        self.reliability = reliability
        self.validation_fraction = validation_fraction
        self.keep = keep
        self.random_state = random_state
        self.verbose = verbose
        self.trainer_options = trainer_options

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RandomSetClassifier:
        """Train on a table (n × F) or images (n × H × W, with channels first or last).

        Labels are of any type, or set-valued: a row of 0 and 1 for each sample (n × N), 1 for each class that
        is possible. The classes are then 0 to N − 1.
        """
        shape = np.asarray(y).shape
        set_valued = len(shape) == 2 and shape[1] > 1
        X, y = validate_data(self, X, y, dtype=np.float32, allow_nd=True, multi_output=set_valued)
        if not set_valued:
            check_classification_targets(y)
        if X.ndim > 4:
            raise ShapeError(
                "expected at most 4 dimensions", got=f"shape {X.shape}", expected="(n × F) or (n × C × H × W)"
            )
        self.input_shape_ = X.shape[1:]
        weights = None
        if sample_weight is not None:
            given = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            used = given > 0  # nothing may depend on samples without weight
            X, y, given = X[used], y[used], given[used]
            weights = torch.from_numpy(given / given.mean())
        if set_valued:
            mask, _ = mask_from_rows(y, len(X))
            self.classes_, labels = np.arange(mask.shape[1]), mask
            codes = mask.int().argmax(1).numpy()  # held-out samples are drawn from each first class
        else:
            self.classes_, codes = np.unique(y, return_inverse=True)
            labels = torch.from_numpy(codes)
        if len(self.classes_) < 2:
            raise LabelError(
                "the labels contain only one class",
                got=f"class {self.classes_[0]}",
                expected="two or more classes",
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rest, held_out = self._parts(codes, seed)
        reliability = check_reliability(self.reliability)
        if reliability != "none" and not len(held_out):
            self._without_reliability(reliability, len(codes))
        inputs = _as_inputs(X)
        config = TrainConfig(
            backbone=self.backbone if isinstance(self.backbone, str) else "auto",
            hidden=tuple(map(int, self.hidden)),
            reliability=reliability,
            batch_size=None if self.batch_size == "auto" else self.batch_size,
            class_weight=self._class_weight(),
            seed=seed,
            **{name: getattr(self, name) for name in _SAME},
        ).checked()
        with torch.random.fork_rng():
            result = train(
                config,
                inputs[rest],
                labels[rest],
                _names(self.classes_),
                (inputs[held_out], labels[held_out]) if len(held_out) else None,
                weights=None if weights is None else weights[rest],
                backbone=None if isinstance(self.backbone, str) else copy.deepcopy(self.backbone),
                progress=bool(self.verbose),
                **{"devices": 1, **(self.trainer_options or {})},
            )
        # Tables are predicted in double precision, so that predictions do not depend on the batch.
        self.network_ = result.model.double() if inputs.dim() == 2 else result.model
        self.threshold_: Threshold | None = None
        if len(held_out):
            entropy = self._answer(inputs[held_out]).entropy
            self.threshold_ = Threshold.keeping(self.keep, entropy, "entropy")
        assert result.fit is not None
        self.report_: FitReport = result.fit
        self.history_ = result.fit.history
        self.n_iter_ = len(self.history_)
        return self

    @property
    def budget_(self) -> Budget:
        """The sets of classes, one output each."""
        check_is_fitted(self, "network_")
        return self.network_.budget

    def predict_random_set(self, X: Any) -> RandomSet:
        """Predict a `RandomSet`: masses, probability intervals and everything derived from them."""
        return self._answer(self._inputs(X))

    def _inputs(self, X: Any) -> Tensor:
        """Return checked inputs as a tensor."""
        check_is_fitted(self, "network_")
        X = validate_data(self, X, dtype=np.float32, allow_nd=True, reset=False)
        if X.shape[1:] != self.input_shape_:
            raise ShapeError(
                "the shape of the samples differs from that seen in fit",
                got=X.shape[1:],
                expected=str(self.input_shape_),
            )
        return _as_inputs(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the pignistic probability of every class (n × N)."""
        betp = self.predict_random_set(X).pignistic.double()
        return (betp / betp.sum(1, keepdim=True)).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most likely class."""
        labels = self.predict_proba(X).argmax(1)  # first: it checks that the estimator is fitted
        return self.classes_[labels]

    def predict_known(self, X: Any) -> NDArray[np.bool_]:
        """Predict which inputs are known (n): those whose entropy is at most `threshold_`.

        A reliability raises the entropy of inputs unlike the training data. Images on another scale than in
        `fit`, which the other methods refuse, are not known. `np.where(known, 1, -1)` is what scikit-learn's
        outlier detectors, such as `IsolationForest`, predict.
        """
        return self._decide(X)[0]

    def predict_or_reject(self, X: Any, *, rejected: Any = -1) -> NDArray[Any]:
        """Predict the most likely class, or `rejected` for inputs that `predict_known` rejects.

        The result has the type of the labels, or is an array of objects if `rejected` has another type, as
        −1 among names.
        """
        known, predicted = self._decide(X)
        if rejected in self.classes_.tolist():
            raise LabelError(
                "the label for rejected inputs is one of the classes",
                got=rejected,
                expected="another value",
                remedy="Pass one, such as rejected=None",
            )
        labels = self.classes_[predicted].astype(_common_type(self.classes_, rejected))
        labels[~known] = rejected
        return labels

    def _decide(self, X: Any) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which inputs are known (n), and the predicted classes (n) as indices."""
        inputs, threshold, spec = self._inputs(X), self._threshold(), self.network_.input_spec
        usual = torch.ones(len(inputs), dtype=torch.bool)
        if spec is not None and spec.kind == "images":
            usual = ~spec.off_scale(inputs)
        known, labels = torch.zeros_like(usual), torch.zeros(len(inputs), dtype=torch.long)
        if usual.any():
            answer = self._answer(inputs[usual])
            known[usual], labels[usual] = threshold.known_by(answer.scores), answer.labels
        elif spec is not None:
            warnings.warn(
                "all images are on a different scale than in fit, so none is known; got values up to "
                f"{float(inputs.abs().max()):g}; expected values up to about {spec.largest:g}",
                RandomSetWarning,
                stacklevel=3,
            )
        return known.numpy(), labels.numpy()

    def _answer(self, inputs: Tensor) -> RandomSet:
        return self.network_.predict(inputs, progress=bool(self.verbose))

    def _threshold(self) -> Threshold:
        if self.threshold_ is None:
            raise RandomSetError(
                "there is no threshold between known and unknown inputs",
                got="no held-out samples",
                **self._enough_samples(),
            )
        return self.threshold_

    def _parts(self, codes: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        share = self.validation_fraction
        if not 0 <= share < 1:
            raise RandomSetError(
                "validation_fraction is out of range", got=share, expected="0 ≤ validation_fraction < 1"
            )
        if not 0 < self.keep <= 1:
            raise RandomSetError("keep is out of range", got=self.keep, expected="0 < keep ≤ 1")
        needed = max(ENOUGH, len(self.classes_))
        rest, held_out = stratified_parts(codes, [enough(share, len(codes), needed)], seed)
        return (rest, held_out) if len(held_out) >= needed else (np.arange(len(codes)), held_out[:0])

    def _enough_samples(self) -> dict[str, str]:
        """Return what is expected and the remedy, for messages."""
        needed = max(ENOUGH, len(self.classes_))
        expected = f"at least {needed} held out, which takes {4 * needed} samples or more"
        return {"expected": expected, "remedy": "Fit with more samples, or with a larger validation_fraction"}

    def _without_reliability(self, kind: str, samples: int) -> None:
        """Reject a kind of reliability that was asked for by name; warn of the default's absence."""
        held = f"{samples} samples, of which validation_fraction={self.validation_fraction} holds out too few"
        if kind != "auto":
            raise RandomSetError(
                "too few samples to fit a reliability",
                got=held,
                **self._enough_samples(),
            )
        if self.validation_fraction:
            wanted = self._enough_samples()
            warnings.warn(
                "no reliability and no threshold were fitted, so inputs unlike the training data can be "
                f"predicted with certainty; got {held}; expected {wanted['expected']}. {wanted['remedy']}",
                RandomSetWarning,
                stacklevel=3,
            )

    def _class_weight(self) -> Any:
        """Return the weights of the classes in the order of `classes_`."""
        given = self.class_weight
        if not isinstance(given, Mapping):
            if given not in (None, "balanced"):
                raise RandomSetError(
                    "invalid class_weight",
                    got=repr(given),
                    expected='None, "balanced", or a dictionary of labels and weights',
                )
            return given
        if unknown := [label for label in given if label not in self.classes_.tolist()]:
            raise LabelError(
                "unknown class in class_weight",
                got=unknown[0],
                expected=f"one of {', '.join(map(str, self.classes_[:10]))}",
            )
        return checked_class_weight([given.get(label, 1.0) for label in self.classes_.tolist()])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.non_deterministic = False
        return tags


def _as_inputs(array: NDArray[np.float32]) -> Tensor:
    """Bring images into the form (n × C × H × W)."""
    return torch.from_numpy(np.ascontiguousarray(array)) if array.ndim == 2 else images_from_array(array)


def _common_type(classes: NDArray[Any], value: Any) -> Any:
    """Return the type of an array that holds both numbers, or both names; objects otherwise."""
    given = np.asarray(value).dtype
    alike = (classes.dtype.kind in "iuf" and given.kind in "iuf") or classes.dtype.kind == given.kind == "U"
    return np.result_type(classes.dtype, given) if alike else object


def _names(classes: NDArray[Any]) -> tuple[str, ...]:
    names = tuple(map(str, classes.tolist()))
    usable = len(set(names)) == len(names) and all(name.strip() for name in names)
    return names if usable else tuple(f"class {i}" for i in range(len(names)))
