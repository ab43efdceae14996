import pytest
import torch

from randomset import RandomSetEnsemble, backbones
from randomset.errors import ShapeError
from randomset.evaluation import Threshold
from randomset.serving.answers import Answers
from tests.serving.conftest import network_of

pytestmark = pytest.mark.slow


def test_rows_and_details_of_a_random_set_network():
    network, inputs = network_of(backbones.mlp(4)), torch.randn(5, 4)
    answers, expected = (
        Answers(network, inputs, threshold=Threshold("entropy", 2.0, 0.95)),
        network.predict(inputs),
    )
    rows = list(answers)
    assert len(answers) == len(rows) == 5
    assert [row["label"] for row in rows] == expected.label_names
    assert [row["known"] for row in rows] == (expected.entropy <= 2).tolist()
    details = answers.details(3)
    assert list(details["probabilities"]) == list(network.classes)
    assert sum(part["mass"] for part in details["masses"]) == pytest.approx(1, abs=1e-5)
    low, high = answers.intervals(3)[rows[3]["label"]]
    assert (low, high) == pytest.approx((rows[3]["lower"], rows[3]["upper"]))


def test_reliability_is_a_column_of_discounted_predictions():
    network, inputs = network_of(backbones.mlp(4)), torch.randn(200, 4)
    assert "reliability" not in Answers(network, inputs).columns
    network.fit_reliability((inputs, torch.arange(200) % 10), (inputs[:50], torch.arange(50) % 10))
    threshold = Threshold("1 - reliability", 0.5, 0.95)
    far = torch.cat((inputs[:3], 50 * inputs[:3]))
    rows = list(Answers(network, far, threshold=threshold))
    expected = network.predict(far).reliability
    assert [row["reliability"] for row in rows] == pytest.approx(expected.tolist())
    assert [row["known"] for row in rows] == (1 - expected <= 0.5).tolist()
    assert expected[3:].max() < 0.1


def test_members_of_an_ensemble_disagree():
    members = [network_of(backbones.mlp(4)) for _ in range(2)]
    torch.nn.init.normal_(members[1].head.layers[-1].weight)
    ensemble, inputs = RandomSetEnsemble(members), torch.randn(5, 4)
    rows, answer = list(Answers(ensemble, inputs)), ensemble.predict(inputs)
    assert answer.disagreement is not None
    assert [row["disagreement"] for row in rows] == pytest.approx(answer.disagreement.tolist())
    assert "disagreement" not in Answers(members[0], inputs).columns


def test_inputs_of_the_wrong_shape_are_named():
    with pytest.raises(
        ShapeError, match=r"x\.csv: the model cannot take these inputs; got a batch of shape \(2, 3\)"
    ):
        Answers(network_of(backbones.mlp(4)), torch.randn(2, 3), name="x.csv")
