"""The scikit-learn face, by scikit-learn's own checks, in its tools, and on real digits."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from randomset import Budget, RandomSet, RandomSetClassifier, backbones
from randomset.errors import LabelError, RandomSetError, RandomSetWarning, ShapeError

pytestmark = pytest.mark.slow

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "a weight of two changes the loss; a sample that is "
    "there twice changes the batches and the part that is held back"
}


@parametrize_with_checks(
    [RandomSetClassifier(epochs=10, random_state=0)], expected_failed_checks=lambda _: EXPECTED_FAILURES
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(300, 4, centers=4, cluster_std=1.5, random_state=0)


@pytest.fixture(scope="module")
def fitted(blobs):
    return RandomSetClassifier(epochs=8, random_state=0).fit(*blobs)


@pytest.fixture(scope="module")
def reliable(blobs):
    options = {"reliability": "auto", "validation_fraction": 0.2}
    return RandomSetClassifier(epochs=8, random_state=0, **options).fit(*blobs)


@pytest.mark.parametrize("images", [False, True])
def test_digits_with_the_defaults(images):
    X, y = load_digits(return_X_y=True)
    X = X.reshape(-1, 8, 8) if images else X
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)
    classifier = RandomSetClassifier(random_state=0).fit(X_train, y_train)
    assert classifier.score(X_test, y_test) >= 0.97
    assert classifier.budget_.num_sets == 20
    assert classifier.report_.calibration is not None


class TestPredictions:
    def test_they_belong_together(self, blobs, fitted):
        X, y = blobs
        answer = fitted.predict_random_set(X)
        assert isinstance(answer, RandomSet)
        probabilities = fitted.predict_proba(X)
        assert probabilities == pytest.approx(answer.pignistic.numpy(), abs=1e-9)
        assert (fitted.predict(X) == probabilities.argmax(1)).all()
        assert fitted.score(X, y) == (fitted.predict(X) == y).mean() > 0.8
        assert fitted.n_features_in_ == 4
        assert fitted.n_iter_ == 8

    def test_predictions_do_not_depend_on_the_batch(self, blobs, fitted):
        X, _ = blobs
        one_by_one = np.concatenate([fitted.predict_proba(X[i : i + 1]) for i in range(20)])
        assert np.abs(one_by_one - fitted.predict_proba(X)[:20]).max() < 1e-12

    @pytest.mark.parametrize(
        "kind",
        [np.array(["dog", "cat", "cow", "ant"]), np.array([7, -3, 20, 0]), np.array([0.0, 1.0, 2.0, 9.0])],
    )
    def test_labels_of_any_type(self, blobs, kind):
        X, y = blobs
        classifier = RandomSetClassifier(epochs=3, random_state=0).fit(X, kind[y])
        assert classifier.classes_.tolist() == sorted(kind.tolist())
        assert set(classifier.predict(X)) <= set(kind)
        assert classifier.budget_.classes == tuple(map(str, sorted(kind.tolist())))
        assert (classifier.predict(X) == kind[y]).mean() > 0.5

    def test_booleans_and_empty_names(self, blobs):
        X, y = blobs
        classifier = RandomSetClassifier(epochs=1, random_state=0).fit(X, y > 1)
        assert classifier.predict(X).dtype == bool
        assert classifier.budget_ == Budget.singletons(["False", "True"])
        names = np.array(["", "a", "b", "c"])[y]
        assert "class 0" in RandomSetClassifier(epochs=1).fit(X, names).budget_.classes

    def test_images_with_and_without_channels(self):
        generator = np.random.default_rng(0)
        X, y = generator.random((60, 8, 8)), np.arange(60) % 3
        for images in (X, X[:, None], np.stack([X] * 3, 1), np.stack([X] * 3, 3)):
            classifier = RandomSetClassifier(epochs=1, random_state=0).fit(images, y)
            assert classifier.predict(images).shape == (60,)
            with pytest.raises(ValueError, match=r"shape|features"):
                classifier.predict(images[:, :1, :1])
        assert classifier.network_.preprocess.mean.shape == (3,)

    def test_a_backbone_of_the_user(self, blobs):
        X, y = blobs
        own = backbones.mlp(4, (16,))
        before = own.layers[1].weight.detach().clone()
        classifier = RandomSetClassifier(backbone=own, epochs=5, random_state=0).fit(X, y)
        assert torch.equal(own.layers[1].weight, before)
        assert classifier.score(X, y) > 0.7
        assert classifier.network_.head.in_features == 16


class TestKnownInputs:
    def test_most_known_inputs_are_kept_and_far_ones_are_rejected(self, blobs, reliable):
        X, _ = blobs
        known = reliable.predict_known(X)
        assert known.dtype == bool
        assert known.shape == (300,)
        assert 0.85 < known.mean() <= 1
        far = 20 * X[np.abs(X).max(1) > 5]
        assert len(far) > 20
        assert not reliable.predict_known(far).any()
        assert reliable.predict_random_set(far).reliability.max() < 0.1

    def test_the_threshold_keeps_its_share_of_the_held_out_samples(self, blobs, reliable):
        assert (reliable.threshold_.score, reliable.threshold_.share) == ("entropy", 0.95)
        strict = clone(reliable).set_params(keep=0.5).fit(*blobs)
        assert strict.threshold_.value < reliable.threshold_.value
        assert strict.predict_known(blobs[0]).mean() < 0.75

    def test_rejected_inputs_get_a_label_of_their_own(self, blobs, reliable):
        X, _ = blobs
        mixed = np.concatenate([X, np.full((2, 4), 1e3)])
        labels = reliable.predict_or_reject(mixed)
        known = reliable.predict_known(mixed)
        assert labels.dtype.kind == "i"
        assert (labels[known] == reliable.predict(mixed)[known]).all()
        assert (labels[~known] == -1).all()
        assert labels[-2:].tolist() == [-1, -1]
        assert reliable.predict_or_reject(mixed, rejected=None)[-1] is None

    @pytest.mark.parametrize(
        ("kind", "rejected", "dtype"),
        [
            (["ant", "cat", "cow", "dog"], "unknown", "U"),
            (["ant", "cat", "cow", "dog"], -1, "O"),
            ([0.0, 1.0, 2.0, 9.0], -1, "f"),
            ([False, True, False, True], -1, "O"),
        ],
    )
    def test_labels_of_any_type(self, blobs, kind, rejected, dtype):
        X, y = blobs
        classifier = RandomSetClassifier(epochs=1, random_state=0, keep=0.5).fit(X, np.array(kind)[y])
        labels = classifier.predict_or_reject(X, rejected=rejected)
        assert labels.dtype.kind == dtype
        known = classifier.predict_known(X)
        assert 0 < known.sum() < 300
        assert labels[known].tolist() == classifier.predict(X)[known].tolist()
        assert set(labels[~known].tolist()) == {rejected}

    def test_mistakes(self, blobs, reliable):
        X, y = blobs
        with pytest.raises(LabelError, match=r"is one of the classes; got 2; .*rejected=None"):
            reliable.predict_or_reject(X, rejected=2)
        without = RandomSetClassifier(epochs=1, validation_fraction=0).fit(X, y)
        assert without.threshold_ is None
        for call in (without.predict_known, without.predict_or_reject):
            with pytest.raises(RandomSetError, match=r"there is no threshold .*validation_fraction"):
                call(X)
        for call in (RandomSetClassifier().predict_known, RandomSetClassifier().predict_or_reject):
            with pytest.raises(NotFittedError):
                call(X)

    @pytest.mark.filterwarnings("error")
    def test_images_on_another_scale(self):
        """`predict` refuses them; here they are as unknown as any, and hide no others."""
        digits = load_digits()
        images = digits.images[:400] / 16
        classifier = RandomSetClassifier(epochs=2, random_state=0).fit(images, digits.target[:400])
        mixed = images[:60].copy()
        mixed[::3] *= 50
        expected = classifier.predict_known(images[:60]) & (np.arange(60) % 3 > 0)
        assert expected.any()
        assert (classifier.predict_known(mixed) == expected).all()
        labels = classifier.predict_or_reject(mixed)
        assert (labels[expected] == classifier.predict(images[:60])[expected]).all()
        assert (labels[~expected] == -1).all()
        with pytest.raises(ShapeError, match="on a different scale"):
            classifier.predict(mixed)
        with pytest.warns(
            RandomSetWarning, match=r"all images are on a different scale .* up to 50; expected"
        ):
            assert not classifier.predict_known(50 * images[:3]).any()

    def test_pickles(self, blobs, reliable):
        X, _ = blobs
        again = pickle.loads(pickle.dumps(reliable))
        assert (again.predict_known(X) == reliable.predict_known(X)).all()


class TestSetValuedLabels:
    def test_a_second_class_in_every_label(self, blobs):
        X, y = blobs
        sets = np.eye(4, dtype=int)[y]
        sets[np.arange(300), (y + np.random.default_rng(0).integers(1, 4, 300)) % 4] = 1
        classifier = RandomSetClassifier(epochs=30, random_state=0).fit(X, sets)
        assert classifier.classes_.tolist() == [0, 1, 2, 3]
        assert classifier.score(X, y) > 0.8
        assert classifier.threshold_ is not None

    def test_invalid_rows(self, blobs):
        X, y = blobs
        sets = np.eye(4)[y]
        sets[3] = 0
        with pytest.raises(LabelError, match="empty set in row 3"):
            RandomSetClassifier().fit(X, sets)
        with pytest.raises(LabelError, match="a row of 0 and 1 for each sample"):
            RandomSetClassifier().fit(X, sets + 0.5)


class TestParameters:
    def test_the_seed_decides(self, blobs, fitted):
        X, y = blobs
        again = RandomSetClassifier(epochs=8, random_state=0).fit(X, y)
        assert (again.predict_proba(X) == fitted.predict_proba(X)).all()
        other = RandomSetClassifier(epochs=8, random_state=1).fit(X, y)
        assert not (other.predict_proba(X) == fitted.predict_proba(X)).all()

    @pytest.mark.parametrize("num_sets", [0, 3, "auto", 1000])
    def test_numbers_of_sets(self, blobs, num_sets):
        budget = RandomSetClassifier(num_sets, epochs=1, random_state=0).fit(*blobs).budget_
        assert budget.num_sets == {0: 0, 3: 3, 1000: 10}.get(num_sets, budget.num_sets)

    def test_enough_samples_are_held_out_or_none(self):
        X, y = load_iris(return_X_y=True)
        wrong = (
            r"no reliability and no threshold were fitted.*got 50 samples, of which validation_fraction=0\.1 "
            r"holds out too few; expected at least 20 held out, which takes 80 samples or more"
        )
        with pytest.warns(RandomSetWarning, match=wrong):
            few = RandomSetClassifier(epochs=1).fit(X[::3], y[::3])
        assert few.network_.calibration is None
        assert (few.predict_random_set(1000 * X).reliability == 1).all()
        with pytest.raises(RandomSetError, match=r"too few samples to fit a reliability; got 50 samples"):
            RandomSetClassifier(epochs=1, reliability="neighbours").fit(X[::3], y[::3])
        small = RandomSetClassifier(epochs=1, random_state=0).fit(X, y)  # a tenth would be 15
        assert small.network_.calibration is not None
        assert small.network_.reliability is not None
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # who asks for none needs no warning
            none = RandomSetClassifier(epochs=1, validation_fraction=0).fit(X, y)
            RandomSetClassifier(epochs=1, reliability="none").fit(X[::3], y[::3])
        assert none.network_.calibration is None

    def test_no_reliability(self, blobs):
        for none in ("none", None):
            classifier = RandomSetClassifier(epochs=1, reliability=none, random_state=0).fit(*blobs)
            assert classifier.network_.reliability is None
        with pytest.raises(RandomSetError, match=r"unknown kind of reliability; got False; expected one of"):
            RandomSetClassifier(epochs=1, reliability=False).fit(*blobs)

    def test_weights(self, blobs):
        X, y = blobs
        strange = np.concatenate([X, np.full((20, 4), 1e6)]), np.concatenate([y, np.zeros(20, int)])
        weights = np.r_[np.ones(300), np.zeros(20)]
        without = RandomSetClassifier(epochs=3, random_state=0).fit(X, y, np.ones(300))
        ignored = RandomSetClassifier(epochs=3, random_state=0).fit(*strange, weights)
        assert (ignored.predict_proba(X) == without.predict_proba(X)).all()
        X, y = make_blobs(300, 4, centers=4, cluster_std=8, random_state=0)  # overlapping classes
        heavy = RandomSetClassifier(epochs=8, random_state=0).fit(X, y, np.where(y == 2, 100, 1))
        light = RandomSetClassifier(epochs=8, random_state=0).fit(X, y, np.where(y == 2, 0.01, 1))
        assert heavy.predict_proba(X)[:, 2].mean() > light.predict_proba(X)[:, 2].mean() + 0.1

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"epochs": 0}, "epochs"),
            ({"num_sets": -1}, "num_sets"),
            ({"num_sets": "many"}, "num_sets"),
            ({"backbone": "vgg"}, "mlp"),
            ({"recipe": "slow"}, "paper, fast"),
            ({"validation_fraction": 1.0}, "validation_fraction"),
            ({"keep": 0.0}, "keep is out of range"),
            ({"hidden": (0,)}, "positive"),
            ({"class_weight": {7: 2.0}}, "unknown class in class_weight; got 7; expected one of 0, 1, 2, 3"),
            ({"class_weight": {0: -2.0}}, "finite and not negative"),
            ({"class_weight": "even"}, "invalid class_weight; got 'even'"),
            ({"sampling": "often"}, "uniform, balanced"),
            ({"augment": "flip"}, "expected images"),
            ({"ema": 1.5}, "ema is out of range"),
        ],
    )
    def test_mistakes(self, blobs, options, message):
        with pytest.raises(RandomSetError, match=message):
            RandomSetClassifier(**{"epochs": 1, **options}).fit(*blobs)

    def test_balance_raises_the_recall_of_a_rare_class(self):
        X, y = make_blobs([12, 200], 2, centers=[[0.0, 0.0], [1.5, 1.5]], random_state=0)
        X_new, _ = make_blobs([300, 0], 2, centers=[[0.0, 0.0], [1.5, 1.5]], random_state=1)
        names = np.array(["rare", "common"])

        def recall(**options):
            fitted = RandomSetClassifier(epochs=20, learning_rate=1e-2, random_state=0, **options)
            return (fitted.fit(X, names[y]).predict(X_new) == "rare").mean()

        plain = recall()
        for options in (
            {"class_weight": "balanced"},
            {"class_weight": {"rare": 16}},
            {"sampling": "balanced"},
        ):
            assert recall(**options) > plain + 0.15

    def test_averages_and_mixtures(self, blobs):
        X, y = blobs
        options = {"augment": "mixup", "ema": 0.9, "random_state": 0}
        first, second = (RandomSetClassifier(epochs=8, **options).fit(X, y) for _ in "12")
        assert (first.predict_proba(X) == second.predict_proba(X)).all()
        assert first.score(X, y) > 0.8

    def test_invalid_weights(self, blobs):
        with pytest.raises(ValueError, match="non-zero"):
            RandomSetClassifier(epochs=1).fit(*blobs, np.zeros(300))
        with pytest.raises(ValueError, match=r"[Nn]egative"):
            RandomSetClassifier(epochs=1).fit(*blobs, np.full(300, -1.0))
        with pytest.raises(ShapeError, match="at most 4 dimensions"):
            RandomSetClassifier(epochs=1).fit(np.zeros((9, 1, 2, 2, 2)), np.arange(9) % 3)

    def test_before_fit(self):
        for call in (lambda c: c.predict([[0]]), lambda c: c.predict_random_set([[0]]), lambda c: c.budget_):
            with pytest.raises(NotFittedError):
                call(RandomSetClassifier())


class TestInScikitLearnsTools:
    def test_clones_and_pickles(self, blobs, fitted):
        X, _ = blobs
        again = pickle.loads(pickle.dumps(fitted))
        assert (again.predict_proba(X) == fitted.predict_proba(X)).all()
        assert clone(fitted).get_params() == fitted.get_params()

    def test_pipeline_grid_and_cross_validation(self, blobs):
        pipeline = make_pipeline(StandardScaler(), RandomSetClassifier(random_state=0))
        grid = {"randomsetclassifier__epochs": np.array([2, 6]), "randomsetclassifier__num_sets": [2]}
        search = GridSearchCV(pipeline, grid, cv=2).fit(*blobs)
        assert search.best_params_["randomsetclassifier__epochs"] in (2, 6)
        assert search.best_score_ > 0.6
        scores = cross_val_score(RandomSetClassifier(epochs=6, random_state=0), *blobs, cv=2)
        assert (scores > 0.6).all()

    def test_under_mapie(self, blobs):
        from mapie.classification import SplitConformalClassifier

        X, y = make_blobs(900, 4, centers=4, cluster_std=3.0, random_state=1)
        base = RandomSetClassifier(epochs=6, random_state=0).fit(X[:300], y[:300])
        conformal = SplitConformalClassifier(base, confidence_level=0.9, prefit=True)
        conformal.conformalize(X[300:600], y[300:600])
        _, sets = conformal.predict_set(X[600:])
        covered = sets[np.arange(300), y[600:], 0].mean()
        assert 0.83 < covered < 0.97
