"""A wrapped classifier predicts what the classifier does; files, exports and further training."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

import randomset as rs
from randomset import backbones
from randomset.errors import RandomSetError
from randomset.models import MCDropout, Softmax, WrappedClassifier, load
from randomset.models.calibration import SoftmaxTemperature
from randomset.serving import Deployed, export_onnx, export_torch
from randomset.training import TrainConfig, train
from tests.backbones.test_surgery import CLASSIFIERS
from tests.models.conftest import MAKERS, X, Y, body, data


@pytest.mark.parametrize("case", CLASSIFIERS)
class TestOtherClassifiers:
    """Plain modules, and modules like those of torchvision, timm and Hugging Face."""

    def test_the_probabilities_are_the_same(self, case):
        make, x, layer = CLASSIFIERS[case]
        classifier = make().eval()
        network = WrappedClassifier.from_classifier(classifier)
        output = classifier(x)
        logits = getattr(output, "logits", output)
        expected = logits if case == "with softmax" else logits.softmax(-1)
        answer = network.predict(x)
        assert network.replaced_layer == layer
        assert torch.allclose(answer.pignistic, expected, atol=1e-6)
        assert torch.equal(answer.labels, logits.argmax(-1))
        assert not answer.mass[:, -1].any()

    def test_files(self, case, tmp_path):
        make, x, _ = CLASSIFIERS[case]
        network = WrappedClassifier.from_classifier(make())
        with pytest.raises(RandomSetError, match="backbone="):
            load(network.save(tmp_path))
        again = WrappedClassifier.load(tmp_path, backbone=make())
        assert torch.equal(again.predict(x).mass, network.predict(x).mass)


class TestSoftmaxNetworks:
    def test_logits_and_parts(self):
        model = Softmax(body(), ("a", "b", "c"), preprocess=backbones.Standardise([0.0, 1.0], [1.0, 2.0]))
        model.notes = {"input_shape": [2], "config": {"seed": 1}}
        network = WrappedClassifier.from_classifier(model, rs.Budget.singletons("abc"))
        assert torch.equal(network(X), model(X))
        assert network.classes == ("a", "b", "c")
        assert network.input_spec.shape == (2,)
        assert "config" not in network.notes
        with torch.no_grad():
            model.layer.weight.zero_()
        assert not torch.equal(network(X), model(X)), "the classifier is copied"

    def test_other_classifiers(self):
        for model in (MCDropout(body(), 3), MAKERS["ensemble"]()):
            with pytest.raises(
                RandomSetError, match=f"cannot wrap this classifier; got {type(model).__name__}"
            ):
                WrappedClassifier.from_classifier(model)
        network = rs.RandomSetNetwork(body(), rs.Budget.powerset(3))
        with pytest.raises(RandomSetError, match=r"already a random-set network.*fit_reliability"):
            WrappedClassifier.from_classifier(network)

    def test_precision(self):
        classifier = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3, bias=False)).double()
        network = WrappedClassifier.from_classifier(classifier)
        assert network.dtype == torch.float64
        assert torch.allclose(network.predict(X).pignistic, classifier(X.double()).softmax(-1))

    def test_one_linear_layer(self):
        classifier = nn.Linear(2, 3)
        assert torch.equal(WrappedClassifier.from_classifier(classifier)(X), classifier(X))


class TestCalibration:
    def test_masses_by_hand(self):
        network = WrappedClassifier.from_classifier(nn.Sequential(nn.Linear(2, 2)))
        network.calibration = SoftmaxTemperature(2.0)
        answer = network.random_set(torch.tensor([[2.0, 0.0]]))
        p = 1 / (1 + torch.exp(torch.tensor(-1.0)))
        assert torch.allclose(answer.mass, torch.stack([p, 1 - p, torch.tensor(0.0)])[None])
        plain = network.random_set(torch.tensor([[2.0, 0.0]]), calibrated=False)
        assert plain.mass[0, 0].item() == pytest.approx(0.8808, abs=1e-4)

    def test_the_temperature_is_that_of_the_softmax_network(self):
        model = Softmax(body(), 3)
        network = WrappedClassifier.from_classifier(model)
        expected = model.calibrate((X, Y))
        report = rs.calibrate(network, (X, Y))
        assert report.temperature == pytest.approx(expected.temperature)
        assert report.nll == pytest.approx(expected.nll)
        assert report.changed == 0
        assert torch.allclose(network.predict(X).pignistic, model.predict(X).probabilities, atol=1e-6)


def test_further_training():
    """It starts from the classifier, and is calibrated again."""
    network = MAKERS["wrapped"]()
    report = rs.fit(
        network, (X, Y), data(60, seed=1), epochs=40, batch_size=30, reliability="auto", progress=False
    )
    assert report.last["val_accuracy"] > 0.8
    assert report.calibration.kind == "SoftmaxTemperature"
    assert network.predict(X).is_discounted


def test_trained_by_name(tmp_path):
    """`randomset train --method wrapped` trains a softmax network first, `compare` uses the one it has."""
    config = TrainConfig(method="wrapped", epochs=10, reliability="gaussians").checked()
    model = train(config, X, Y, ("a", "b", "c"), data(60, seed=1), progress=False).model
    assert type(model) is WrappedClassifier
    assert model.reliability.kind == "gaussians"
    base = Softmax(body(), ("a", "b", "c"))
    again = train(config, X, Y, ("a", "b", "c"), data(60, seed=1), base=base, progress=False).model
    assert torch.equal(again.predict(X).labels, base.predict(X).labels)
    with pytest.raises(RandomSetError, match="needs validation data"):
        train(config, X, Y, ("a", "b", "c"), progress=False)
    masks = nn.functional.one_hot(Y, 3).bool()
    with pytest.raises(RandomSetError, match="one class per sample"):
        train(config, X, masks, ("a", "b", "c"), data(60, seed=1), progress=False)


class TestFiles:
    def test_everything_is_saved(self, tmp_path):
        network = MAKERS["wrapped"]()
        again = load(network.save(tmp_path))
        assert torch.equal(again.predict(X).mass, network.predict(X).mass)
        assert type(again.calibration) is SoftmaxTemperature
        assert (tmp_path / "budget.json").exists()

    def test_a_state_restores_the_calibration(self):
        network = MAKERS["wrapped"]()
        plain = WrappedClassifier.from_classifier(Softmax(body(7), 3))
        plain.load_state_dict(network.state_dict())
        assert torch.equal(plain.predict(X).mass, network.predict(X).mass)
        assert torch.equal(copy.deepcopy(network).predict(X).mass, network.predict(X).mass)

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    @pytest.mark.filterwarnings("ignore::FutureWarning")
    def test_exports_agree(self, tmp_path):
        deployed = Deployed(MAKERS["wrapped"]())
        example = torch.cat([X[:8], 30 * X[:8]])
        assert export_onnx(deployed, example, tmp_path / "model.onnx") < 1e-5
        assert export_torch(deployed, example, tmp_path / "model.pt2") < 1e-5


class TestEstimators:
    def test_the_predictions_are_the_same(self):
        inputs, labels = load_iris(return_X_y=True)
        for estimator in (LogisticRegression(max_iter=500), RandomForestClassifier(20, random_state=0)):
            network = WrappedClassifier.from_estimator(estimator.fit(inputs, labels))
            answer = network.predict(inputs)
            expected = torch.from_numpy(estimator.predict_proba(inputs))
            assert torch.allclose(answer.pignistic, expected, atol=1e-5)
            assert torch.equal(answer.labels, expected.argmax(1))

    def test_it_cannot_leave_the_process(self, tmp_path):
        inputs, labels = load_iris(return_X_y=True)
        network = WrappedClassifier.from_estimator(LogisticRegression(max_iter=500).fit(inputs, labels))
        with pytest.raises(RandomSetError, match="cannot be saved without pickle"):
            network.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()
        with pytest.raises(RandomSetError, match="scikit-learn estimator cannot be exported"):
            Deployed(network)
        assert network.softmax_counterpart() is None

    def test_errors(self):
        with pytest.raises(RandomSetError, match="the estimator is not fitted; got LogisticRegression"):
            WrappedClassifier.from_estimator(LogisticRegression())
        inputs, labels = load_iris(return_X_y=True)
        several = RandomForestClassifier(2).fit(inputs, np.stack([labels, labels], 1))
        with pytest.raises(RandomSetError, match="several labels"):
            WrappedClassifier.from_estimator(several)
        with pytest.raises(RandomSetError, match="different number of classes"):
            WrappedClassifier.from_estimator(LogisticRegression(max_iter=500).fit(inputs, labels), "ab")


class Scaled(nn.Linear):
    def forward(self, inputs):
        return 10 * nn.functional.linear(nn.functional.normalize(inputs), self.weight)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: WrappedClassifier(body(), rs.Budget.powerset(3)),
            r"one output for each class.*singletons\(3\)",
        ),
        (lambda: WrappedClassifier.from_classifier("resnet50"), "cannot wrap this classifier; got str"),
        (lambda: WrappedClassifier.from_classifier(nn.Sequential(nn.Linear(2, 1))), "a single output"),
        (lambda: WrappedClassifier.from_classifier(nn.Sequential(Scaled(2, 3))), "got 0, a Scaled"),
        (
            lambda: WrappedClassifier.from_classifier(
                nn.Sequential(nn.Linear(2, 3)), rs.Budget.singletons(4)
            ),
            "different number of classes; got 3 outputs of layer 0 of Sequential; expected 4",
        ),
        (
            lambda: WrappedClassifier.from_classifier(nn.Sequential(nn.Conv2d(1, 3, 1))),
            r"no linear layer.*0 \(Conv2d\).*nn.Linear",
        ),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(RandomSetError, match=message):
        call()
