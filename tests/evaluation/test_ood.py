"""Out-of-distribution detection and thresholds: by definition, and on published predictions."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from randomset.errors import RandomSetError
from randomset.evaluation import Prediction
from randomset.evaluation.accuracy import top_accuracy
from randomset.evaluation.ood import detection, rank_average
from randomset.models.threshold import Threshold


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
