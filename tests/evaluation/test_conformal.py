"""Conformal sets: the guarantee over many splits, and agreement with other libraries."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from randomset.errors import RandomSetError
from randomset.evaluation import Prediction
from randomset.evaluation.conformal import SCORES, Conformal, nonconformity, uniform_from_rows


def draw(samples, seed, classes=5):
    """Predictions with bounds, and labels that they are only roughly right about."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, generator=generator, dtype=torch.double)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    p = (0.7 * logits).softmax(1)
    slack = 0.3 * torch.rand(samples, 1, generator=generator, dtype=torch.double)
    return Prediction(p, lower=p * (1 - slack), upper=p + slack * (1 - p)), labels


def part(prediction, which):
    return Prediction(
        prediction.probabilities[which], lower=prediction.lower[which], upper=prediction.upper[which]
    )


class TestScores:
    prediction = Prediction(
        torch.tensor([[0.5, 0.3, 0.2]]),
        lower=torch.tensor([[0.4, 0.2, 0.1]]),
        upper=torch.tensor([[0.7, 0.5, 0.3]]),
    )

    @pytest.mark.parametrize(
        ("score", "expected"),
        [
            ("1 - Pl", [0.3, 0.5, 0.7]),
            ("1 - Bel", [0.6, 0.8, 0.9]),
            ("1 - BetP", [0.5, 0.7, 0.8]),
            ("APS", [0.5, 0.8, 1.0]),
        ],
    )
    def test_by_hand(self, score, expected):
        assert nonconformity(self.prediction, score)[0].tolist() == pytest.approx(expected)

    def test_raps_adds_to_far_ranks(self):
        found = nonconformity(self.prediction, "RAPS", penalty=0.1, free=1)
        assert found[0].tolist() == pytest.approx([0.5, 0.9, 1.2])

    def test_a_seed_takes_off_a_share(self):
        plain, random = (nonconformity(self.prediction, "APS", seed=seed)[0] for seed in (None, 3))
        share = (plain - random) / self.prediction.probabilities[0]
        assert share.tolist() == pytest.approx([share[0].item()] * 3, rel=1e-5)
        assert 0 < share[0] < 1

    def test_unknown(self):
        with pytest.raises(RandomSetError, match="RAPS"):
            nonconformity(self.prediction, "entropy")


def coverages(score, alpha, splits=200, calibration=60, test=100, by_class=False, spoil=0, **options):
    """Coverage on each of many random splits; `spoil` leaves out as many of the largest scores."""
    prediction, labels = draw(4000, seed=1)
    generator = torch.Generator().manual_seed(2)
    found = []
    for split in range(splits):
        order = torch.randperm(len(labels), generator=generator)
        first, second = order[:calibration], order[calibration : calibration + test]
        conformal = Conformal(part(prediction, first), labels[first], score, by_class=by_class, **options)
        if spoil:
            conformal.reference = [group[:-spoil] for group in conformal.reference]
        sets = conformal.sets(part(prediction, second), alpha)
        found.append((Conformal.measure(sets, labels[second]), split))
    return [result for result, _ in found]


def bounds(alpha, calibration, test, splits):
    """Where the mean coverage over splits lies, but for one case in ten thousand.

    The coverage of one split is a Beta-binomial whose mean is ⌈(n + 1)(1 − α)⌉/(n + 1).
    """
    level = math.ceil((calibration + 1) * (1 - alpha)) / (calibration + 1)
    spread = math.sqrt(level * (1 - level) * (1 / (calibration + 2) + 1 / test) / splits)
    return level - 4 * spread, level + 4 * spread


class TestGuarantee:
    @pytest.mark.slow
    @pytest.mark.parametrize("score", SCORES)
    def test_over_200_splits(self, score):
        options = {"seed": 0} if score in ("APS", "RAPS") else {}
        mean = np.mean([result.coverage for result in coverages(score, 0.1, **options)])
        low, high = bounds(0.1, 60, 100, 200)
        assert low <= mean <= high
        assert low > 0.9 - 0.02

    def test_a_wrong_quantile_would_be_noticed(self):
        mean = np.mean([result.coverage for result in coverages("1 - BetP", 0.1, spoil=3)])
        assert mean < bounds(0.1, 60, 100, 200)[0]

    def test_for_every_class(self):
        """About sixty samples of each class calibrate it, and as many test it."""
        means = []
        for spoil in (0, 5):
            results = coverages("1 - BetP", 0.2, calibration=300, test=300, by_class=True, spoil=spoil)
            means.append(torch.stack([result.by_class for result in results]).nanmean(0))
        spread = math.sqrt(0.8 * 0.2 * (1 / 60 + 1 / 60) / 200)
        low, high = (
            0.8 - 4 * spread,
            0.8 + 1 / 45 + 4 * spread,
        )  # the level of n samples is up to 1/(n + 1) higher
        assert ((means[0] > low) & (means[0] < high)).all()
        assert (means[1] < low).all()  # a wrong quantile would be noticed in every class

    def test_smoothed_p_values_are_uniform(self):
        prediction, labels = draw(2000, seed=3)
        conformal = Conformal(part(prediction, slice(0, 1000)), labels[:1000], "1 - Pl", seed=0)
        values = conformal.p_values(part(prediction, slice(1000, 2000)), smoothed=True)
        own = values.gather(1, labels[1000:, None]).squeeze(1)
        for level in (0.1, 0.5, 0.9):
            low, high = binom.interval(0.9999, 1000, level)
            assert low - 60 < (own <= level).sum() < high + 60  # the calibration part varies, too


class TestSets:
    def test_p_values_of_columns_that_lie_apart_in_memory(self):
        apart = torch.rand(2, 30, generator=torch.Generator().manual_seed(0)).softmax(0).T
        conformal = Conformal(Prediction(apart), torch.arange(30) % 2)
        together = conformal.p_values(Prediction(apart.contiguous()))
        assert torch.equal(
            conformal.p_values(Prediction(apart)), together
        )  # torch's warning would be an error

    def test_p_values_count_the_test_point(self):
        calibration = Prediction(torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]))
        conformal = Conformal(calibration, torch.tensor([0, 0, 1]))  # scores 0.1, 0.4, 0.2
        values = conformal.p_values(Prediction(torch.tensor([[0.7, 0.3]])))
        assert values[0].tolist() == pytest.approx([2 / 4, 1 / 4])  # 0.3: one as strange; 0.7: none

    def test_a_p_value_of_exactly_alpha_is_not_above_it(self):
        p = torch.linspace(0.55, 0.95, 29)
        conformal = Conformal(Prediction(torch.stack((p, 1 - p), 1)), torch.zeros(29, dtype=torch.long))
        test = Prediction(torch.tensor([[p[1].item() + 1e-4, 1 - p[1].item() - 1e-4]]))
        assert conformal.p_values(test)[0, 0].item() == 3 / 30
        assert not conformal.sets(test, 0.1)[0, 0]

    def test_never_empty(self):
        prediction, labels = draw(300, seed=4)
        conformal = Conformal(prediction, labels)
        plain = conformal.sets(prediction, 0.7)
        filled = conformal.sets(prediction, 0.7, never_empty=True)
        empty = ~plain.any(1)
        assert empty.any()
        assert torch.equal(plain[~empty], filled[~empty])
        assert (filled[empty].sum(1) == 1).all()
        assert torch.equal(filled[empty].double().argmax(1), prediction.labels[empty])

    def test_larger_alpha_gives_smaller_sets(self):
        prediction, labels = draw(300, seed=4)
        conformal = Conformal(prediction, labels, "APS")
        nested = [conformal.sets(prediction, alpha) for alpha in (0.05, 0.2, 0.5)]
        assert (nested[0] >= nested[1]).all()
        assert (nested[1] >= nested[2]).all()

    def test_measured_by_hand(self):
        sets = torch.tensor([[True, True, False], [False, False, False], [True, False, False]])
        found = Conformal.measure(sets, torch.tensor([0, 0, 1]))
        assert (found.coverage, found.size, found.empty) == pytest.approx((1 / 3, 1.0, 1 / 3))
        assert found.by_class[:2].tolist() == [0.5, 0.0]
        assert found.by_class[2].isnan()
        assert found.size_by_class[:2].tolist() == [1.0, 1.0]

    def test_bad_alpha(self):
        prediction, labels = draw(10, seed=0)
        with pytest.raises(RandomSetError, match="alpha is out of range"):
            Conformal(prediction, labels).sets(prediction, 1.0)


class TestOtherLibraries:
    @pytest.mark.parametrize("by_class", [False, True])
    def test_crepes(self, by_class):
        from crepes import ConformalClassifier

        prediction, labels = draw(500, seed=5)
        strange = nonconformity(prediction, "1 - BetP").numpy()
        first, second = slice(0, 300), slice(300, 500)
        own = strange[np.arange(300), labels[:300]]
        other = ConformalClassifier().fit(own, bins=labels[:300].numpy() if by_class else None)
        conformal = Conformal(part(prediction, first), labels[:300], by_class=by_class)
        ours = conformal.p_values(part(prediction, second)).numpy()
        if by_class:
            theirs = np.stack(
                [
                    other.predict_p(strange[second], bins=np.full(200, c), smoothing=False)[:, c]
                    for c in range(5)
                ],
                1,
            )
        else:
            theirs = other.predict_p(strange[second], smoothing=False)
        assert ours == pytest.approx(theirs, abs=1e-9)

    @pytest.mark.slow
    def test_mapie(self):
        from mapie.classification import SplitConformalClassifier
        from sklearn.base import BaseEstimator, ClassifierMixin

        prediction, labels = draw(500, seed=6)

        class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
            classes_ = np.arange(5)
            fitted_ = True

            def fit(self, X, y):
                return self

            def predict_proba(self, X):
                return prediction.probabilities[X[:, 0].astype(int)].numpy()

            def predict(self, X):
                return self.predict_proba(X).argmax(1)

        rows = np.arange(500.0)[:, None]
        other = SplitConformalClassifier(Given(), confidence_level=0.85, conformity_score="lac", prefit=True)
        other.conformalize(rows[:300], labels[:300].numpy())
        _, theirs = other.predict_set(rows[300:])
        ours = Conformal(part(prediction, slice(0, 300)), labels[:300]).sets(
            part(prediction, slice(300, 500)), 0.15
        )
        assert (ours.numpy() == theirs[:, :, 0]).mean() > 0.999  # they differ at most where scores are equal


class TestOneByOne:
    """An input is answered alike, alone or among others."""

    @pytest.mark.parametrize("score", ["1 - BetP", "APS", "RAPS"])
    @pytest.mark.parametrize("by_class", [False, True])
    def test_the_same_sets(self, score, by_class):
        calibration, labels = draw(300, seed=1)
        test, _ = draw(60, seed=2)
        single = [test[row : row + 1] for row in range(60)]
        conformal = Conformal(calibration, labels, score, by_class=by_class, seed=3)
        together = conformal.sets(test, 0.1)
        assert torch.equal(together, torch.cat([conformal.sets(row, 0.1) for row in single]))
        p = conformal.p_values(test)
        assert torch.equal(together, p > 0.1)  # the quantile is the p-value's
        smoothed = conformal.p_values(test, smoothed=True)
        one = torch.cat([conformal.p_values(row, smoothed=True) for row in single])
        assert torch.equal(smoothed, one)
        assert (smoothed <= p).all()

    @pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 1 / 3, 0.5, 0.9])
    @pytest.mark.parametrize("samples", [1, 2, 3, 9, 10, 19, 20, 99, 100])
    def test_every_quantile_is_that_of_the_p_values(self, alpha, samples):
        calibration, labels = draw(samples, seed=samples)
        conformal = Conformal(calibration, labels)
        test = Prediction.concatenate((calibration, draw(50, seed=4)[0]))
        assert torch.equal(conformal.sets(test, alpha), conformal.p_values(test) > alpha)

    def test_the_numbers_are_uniform(self):
        found = uniform_from_rows(draw(5000, seed=0)[0].probabilities, 7)
        assert 0 <= found.min() < 0.002 < 0.998 < found.max() < 1
        assert (found.sort().values - torch.linspace(0, 1, 5000, dtype=torch.double)).abs().max() < 0.03
