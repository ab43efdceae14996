"""Metrics: by hand, by definition, by scikit-learn and torchmetrics, and on published predictions."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics

from randomset.errors import LabelError, RandomSetError
from randomset.evaluation import Prediction
from randomset.evaluation.metrics import (
    balanced_accuracy,
    brier_score,
    calibration_error,
    classwise_calibration_error,
    detection,
    in_turns,
    measure_time,
    negative_log_likelihood,
    rank_average,
    risk_coverage,
    top_accuracy,
)
from randomset.models.prediction import Threshold, reliability_diagram
from tests.evaluation.conftest import TEST, draw, model, network


def test_ties_are_broken_as_in_predictions():
    even = torch.full((40, 7), 1 / 7)
    answers = Prediction(even).labels
    assert top_accuracy(even, answers) == balanced_accuracy(even, answers) == 1.0


class TestAgreement:
    @pytest.mark.parametrize("seed", range(3))
    def test_with_scikit_learn(self, seed):
        p, y = draw(seed=seed)
        assert top_accuracy(p, y) == pytest.approx(metrics.accuracy_score(y, p.argmax(1)))
        assert top_accuracy(p, y, 3) == pytest.approx(metrics.top_k_accuracy_score(y, p.numpy(), k=3))
        assert balanced_accuracy(p, y) == pytest.approx(metrics.balanced_accuracy_score(y, p.argmax(1)))
        assert negative_log_likelihood(p, y) == pytest.approx(metrics.log_loss(y, p.numpy()))
        target = np.eye(6)[y]
        assert brier_score(p, y) == pytest.approx(((p.numpy() - target) ** 2).sum(1).mean())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 9]), "9 at row 1"),
        (torch.tensor([0]), "do not match"),
        (torch.zeros(2), "do not match"),
    ],
)
def test_labels_that_do_not_fit(labels, message):
    for measure in (top_accuracy, balanced_accuracy, negative_log_likelihood, brier_score, calibration_error):
        with pytest.raises(LabelError, match=message):
            measure(torch.full((2, 3), 1 / 3), labels)


class TestCalibrationErrors:
    @pytest.mark.slow
    @pytest.mark.parametrize("bins", [5, 15])
    def test_with_torchmetrics(self, bins):
        from torchmetrics.classification import MulticlassCalibrationError

        p, y = draw()
        other = MulticlassCalibrationError(6, n_bins=bins, norm="l1")
        assert calibration_error(p, y, bins) == pytest.approx(other(p.float(), y).item(), abs=1e-6)

    def test_with_a_loop_over_bins(self):
        p, y = draw()
        confidence, right = p.amax(1), p.argmax(1) == y
        expected = 0.0
        for low in np.arange(10) / 10:
            inside = (confidence > low) & (confidence <= low + 0.1)
            if inside.any():
                gap = right[inside].double().mean() - confidence[inside].mean()
                expected += inside.double().mean().item() * abs(gap.item())
        assert calibration_error(p, y, 10) == pytest.approx(expected)

    def test_every_class_by_itself(self):
        p, y = draw()
        each = classwise_calibration_error(p, y)
        assert each[2].item() == pytest.approx(reliability_diagram(p[:, 2], y == 2).error)
        assert each.shape == (6,)


class TestUnknownInputs:
    def test_by_definition(self):
        generator = torch.Generator().manual_seed(0)
        known, unknown = torch.randn(80, generator=generator), 1 + torch.randn(50, generator=generator)
        found = detection(known, unknown)
        pairs = (unknown[:, None] > known).double().mean().item()
        assert found.auroc == pytest.approx(pairs)
        level = unknown.sort().values[int(np.floor(0.05 * 50))]
        assert found.fpr95 == pytest.approx((known >= level).double().mean().item())
        errors = [
            ((known >= t).double().mean() + (unknown < t).double().mean()).item() / 2
            for t in torch.cat((known, unknown))
        ]
        assert found.error == pytest.approx(min(errors))
        assert detection(-unknown, -known).auprc == pytest.approx(found.auprc_known)
        assert found.known == pytest.approx((known.mean().item(), known.std(correction=0).item()), rel=1e-5)

    def test_ties_are_half_right(self):
        assert detection(torch.zeros(5), torch.zeros(4)).auroc == 0.5

    def test_rank_average_ignores_scales(self):
        generator = torch.Generator().manual_seed(0)
        known = {"a": torch.randn(100, generator=generator), "b": torch.randn(100, generator=generator)}
        other = {"a": torch.randn(20, generator=generator), "b": torch.randn(20, generator=generator)}
        bent = [{"a": part["a"].exp(), "b": 5 * part["b"] - 3} for part in (known, other)]
        assert torch.equal(rank_average(known, other), rank_average(*bent))
        assert rank_average({"a": known["a"]}, {"a": torch.tensor([-99.0, 99.0])}).tolist() == [0, 1]

    @pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 1.0])
    def test_a_threshold_keeps_what_it_promises(self, share):
        score = torch.rand(400, generator=torch.Generator().manual_seed(0))
        threshold = Threshold.keeping(share, score, "entropy")
        kept = threshold.known(score).double().mean().item()
        assert share <= kept < share + 1 / 400 + 1e-9
        with pytest.raises(RandomSetError, match="share is out of range"):
            Threshold.keeping(0.0, score, "entropy")
        with pytest.raises(
            RandomSetError, match=r"cannot choose a threshold from these scores; got shape \(0,\)"
        ):
            Threshold.keeping(share, score[:0], "entropy")

    def test_nothing_to_compare(self):
        for known, unknown in ((torch.zeros(0), torch.zeros(2)), (torch.tensor([torch.nan]), torch.zeros(2))):
            with pytest.raises(RandomSetError, match="invalid scores of the known inputs"):
                detection(known, unknown)


REFERENCE = os.environ.get("RANDOMSET_REFERENCE")


@pytest.mark.skipif(not REFERENCE, reason="RANDOMSET_REFERENCE names no folder")
class TestPublishedPredictions:
    """The figures that the published predictions must give, to the printed digit."""

    def load(self, name):
        return torch.from_numpy(np.load(Path(REFERENCE) / f"enn-{name}.npy"))

    @pytest.mark.parametrize(
        ("name", "accuracy", "entropy", "spread"),
        [("mnist_iid", 99.07, 0.0229, 0.127), ("cifar10_iid", 92.24, 0.1268, 0.324)],
    )
    def test_known(self, name, accuracy, entropy, spread):
        found = Prediction(self.load(name))
        labels = self.load(f"{name}-labels").long().flatten()
        assert round(100 * top_accuracy(found.probabilities, labels), 2) == accuracy
        score = found.scores["entropy"].double()
        assert round(score.mean().item(), 4) == entropy
        assert round(score.std(correction=0).item(), 3) == spread

    @pytest.mark.parametrize(
        ("known", "unknown", "auroc", "auprc", "entropy"),
        [
            ("mnist_iid", "fashion_mnist_ood", 81.78, 82.91, 0.314),
            ("mnist_iid", "kmnist_ood", 95.94, 95.45, 0.704),
            ("cifar10_iid", "svhn_ood", 92.76, 89.05, 0.888),
            ("cifar10_iid", "intel_image_ood", 85.67, 58.09, 0.601),
        ],
    )
    def test_unknown(self, known, unknown, auroc, auprc, entropy):
        scores = [Prediction(self.load(name)).scores["entropy"] for name in (known, unknown)]
        found = detection(*scores)
        assert 100 * found.auroc == pytest.approx(auroc, abs=0.01)
        assert 100 * found.auprc == pytest.approx(auprc, abs=0.01)
        assert round(found.unknown[0], 3) == entropy


class TestAbstention:
    def test_by_definition(self):
        generator = torch.Generator().manual_seed(0)
        score, right = torch.rand(50, generator=generator), torch.rand(50, generator=generator) < 0.7
        curve = risk_coverage(score, right)
        order = score.argsort()
        for n in (1, 10, 50):
            assert curve.risk[n - 1].item() == pytest.approx(1 - right[order[:n]].double().mean().item())
        assert curve.area == pytest.approx(curve.risk.mean().item())
        assert curve.accuracy_at([1.0]) == {1.0: pytest.approx(right.double().mean().item())}

    def test_the_order_of_ties_does_not_matter(self):
        right = torch.tensor([True, False, True, False])
        expected = risk_coverage(torch.zeros(4), right).risk
        assert expected.tolist() == [0.5] * 4
        assert torch.equal(risk_coverage(torch.zeros(4), right.flip(0)).risk, expected)


@pytest.mark.slow
class TestResult:
    def test_time(self, result):
        timing = result["timing"]
        for name in ("latency_ms", "throughput", "ratio_single", "ratio_batch"):
            assert 0 < timing[name]["low"] <= timing[name]["median"] <= timing[name]["high"]


class TestMeasureTime:
    def test_without_a_counterpart_there_is_no_ratio(self):
        found = measure_time(model, TEST[0], repeats=3, warm_up=1, batch_size=50)
        assert set(found) == {"batch_size", "repeats", "latency_ms", "throughput"}
        assert (found["batch_size"], found["repeats"]) == (50, 3)
        assert set(measure_time(network(), TEST[0], repeats=2)) == {*found, "ratio_single", "ratio_batch"}

    def test_calls_alternate(self):
        calls = []

        def called(name):
            def predict(inputs):
                calls.append(name)
                return model(inputs)

            return predict

        times = in_turns({"a": called("a"), "b": called("b")}, TEST[0][:1], rounds=2)
        assert calls == ["a", "b"] * 5  # three rounds to warm up
        assert all(time > 0 for time in times.values())

    def test_nothing_to_time(self):
        for inputs, repeats in ((TEST[0][:0], 3), (TEST[0], 0)):
            with pytest.raises(RandomSetError, match="nothing to time"):
                measure_time(model, inputs, repeats=repeats)
