import pytest
import torch

from randomset.evaluation import evaluate
from randomset.report import gallery_of


def test_groups_are_chosen_by_entropy_and_correctness(measured):
    network, result, tested, unknown = measured
    groups = {name: samples for name, _, samples in gallery_of(network, result, tested, unknown, count=4)}
    entropy = result.predictions["test"].scores["entropy"].double()
    assert [sample["entropy"] for sample in groups["Most certain"]] == pytest.approx(
        entropy.sort().values[:4].tolist(), abs=1e-3
    )
    assert groups["Least certain"][0]["entropy"] == pytest.approx(entropy.max().item(), abs=1e-3)
    assert all(sample["label"] != sample["truth"] for sample in groups["Confidently wrong"])
    assert groups["bright: least certain"][0]["truth"] == ""


def test_samples_show_their_belief_function(measured):
    network, result, tested, unknown = measured
    (_, _, samples), *_ = gallery_of(network, result, tested, unknown, count=2)
    for sample in samples:
        assert sum(mass for _, mass, _ in sample["sets"]) == pytest.approx(1, abs=0.03)
        assert all(mass <= belief + 1e-4 for _, mass, belief in sample["sets"])
        assert all(low - 1e-4 <= p <= high + 1e-4 for _, p, low, high in sample["classes"])
        assert sample["image"].startswith("iVBOR")  # a PNG in base64
        assert sample["known"] is None  # without a threshold


def test_samples_of_a_text_model_show_their_text(measured):
    network, result, tested, unknown = measured
    groups = gallery_of(
        network, result, tested, unknown, words=lambda sample: f"{sample.numel()} pixels", count=1
    )
    assert groups[0][2][0]["text"] == "64 pixels"


def test_other_models_show_probabilities_only(measured):
    _, _, tested, _ = measured
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    result = evaluate(model, tested, progress=False)
    (_, _, samples), *_ = gallery_of(model, result, tested, {}, count=1)
    assert samples[0]["sets"] == []
    assert "width" not in samples[0]
