import torch

from randomset.evaluation.predictor import as_predictor
from reproduction import SCALES, Workshop
from reproduction.measures import beside, every_model, known_digit, lead, quality
from tests.reproduction.commands import uses_tiny_results


def evaluation(accuracy, width=True):
    """Made-up numbers of an evaluation with one unknown data set."""

    def scores(level):
        moments = {"mean": level, "std": level / 2}
        return {name: moments for name in ("entropy", "credal width") if width or name == "entropy"}

    unknown = {
        name: {"auroc": accuracy - 0.1, "auprc": accuracy - 0.2, "unknown": moments}
        for name, moments in scores(2.0).items()
    }
    test = {"accuracy": accuracy, "ece": 0.1, "nll": 0.5, "scores": scores(1.0)}
    return {"test": test, "ood": {"svhn": {"scores": unknown}}}


def test_quality_collects_lists_over_seeds():
    assert quality([evaluation(0.9), evaluation(0.8)]) == {
        "accuracy": [0.9, 0.8],
        "ece": [0.1, 0.1],
        "nll": [0.5, 0.5],
        "entropy": {"mean": [1.0, 1.0], "std": [0.5, 0.5]},
        "width": {"mean": [1.0, 1.0], "std": [0.5, 0.5]},
        "unknown": {
            "svhn": {
                "auroc": [0.9 - 0.1, 0.8 - 0.1],
                "auprc": [0.9 - 0.2, 0.8 - 0.2],
                "entropy": {"mean": [2.0, 2.0], "std": [1.0, 1.0]},
                "width": {"mean": [2.0, 2.0], "std": [1.0, 1.0]},
                "auroc by width": [0.9 - 0.1, 0.8 - 0.1],
            }
        },
    }


def test_quality_without_credal_width():
    numbers = quality([evaluation(0.9, width=False)])
    assert "width" not in numbers
    assert set(numbers["unknown"]["svhn"]) == {"auroc", "auprc", "entropy"}


def test_every_model(tmp_path):
    shop = Workshop(SCALES["tiny"], tmp_path, seeds=2)
    configs = every_model(shop, ("mnist",), ("rsnn", "softmax"), alpha=0.5)
    assert [(config.seed, config.method) for config in configs] == [
        *((0, "rsnn"), (0, "softmax")),
        *((1, "rsnn"), (1, "softmax")),
    ]
    assert {config.alpha for config in configs} == {0.5}


def test_formats():
    assert beside("1.0", 2.0, 1) == "1.0 (2.0)"
    assert beside("1.0", None) == "1.0"
    assert lead({"rsnn": [0.5], "softmax": [0.6], "fsvi": [0.4]}) == "-10.00 vs. CNN"
    assert lead({"rsnn": [0.7], "softmax": [0.6], "fsvi": [0.65]}) == "+5.00 vs. FSVI"


class TestTiny:
    pytestmark = uses_tiny_results

    def test_known_digit_is_classified_correctly_by_both(self, made):
        shop = made.shop
        image = known_digit(shop, 3)
        assert image.shape == (1, 1, 8, 8)
        assert image.dtype == torch.float32
        for method in ("rsnn", "softmax"):
            assert as_predictor(shop.model(shop.config("mnist", method)))(image).labels.tolist() == [3]
