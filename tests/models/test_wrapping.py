"""`wrap`: predictions stay the same for known inputs, and unknown inputs get their mass on Θ."""

import logging
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.datasets import load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import randomset as rs
from randomset import backbones
from randomset.errors import LabelError, RandomSetError, RandomSetWarning, ShapeError
from randomset.models import Softmax
from randomset.models.prediction import Threshold
from randomset.models.temperature import measured
from tests.backbones.test_surgery import TwoHeads

DIGITS = torch.tensor(load_digits().data / 16).float(), torch.tensor(load_digits().target)
TRAIN, VAL, TEST = zip(*(part.split([900, 450, 447]) for part in DIGITS), strict=True)


def far_from(inputs):
    """Return inputs 30 times the spread of others away from them, in random directions."""
    directions = torch.randn(200, inputs.shape[1], generator=torch.Generator().manual_seed(3))
    directions *= inputs.shape[1] ** 0.5 / directions.norm(dim=1, keepdim=True)
    return inputs.mean(0) + 30 * inputs.std(0) * directions


FAR = far_from(TRAIN[0])


def trained(model):
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(TRAIN[0]), TRAIN[1]).backward()
        optimiser.step()
    return model.eval()


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


@pytest.fixture(scope="module", params=["module", "softmax"])
def pair(request):
    """A trained classifier, and the same wrapped."""
    torch.manual_seed(0)
    classifier = trained(plain() if request.param == "module" else Softmax(backbones.mlp(64, (64,)), 10))
    return classifier, rs.wrap(classifier, TRAIN, VAL)


class TestKnownInputs:
    def test_labels_and_accuracy_are_the_same(self, pair):
        classifier, network = pair
        assert torch.equal(network.predict(TEST[0]).labels, classifier(TEST[0]).argmax(1))

    def test_the_likelihood_is_that_of_temperature_scaling(self, pair):
        """Within a tenth: 1 % is allowed on the validation data."""
        classifier, network = pair
        scaled = Softmax(nn.Identity(), 10, in_features=10)
        with torch.no_grad():
            scaled.layer.weight.copy_(torch.eye(10))
            scaled.layer.bias.zero_()
            logits, known = classifier(TEST[0]), classifier(VAL[0])
        scaled.calibrate((known, VAL[1]))
        target = nn.functional.one_hot(TEST[1], 10).double()
        expected = measured(scaled.predict(logits).probabilities.double(), target)
        found = measured(network.predict(TEST[0]).pignistic.double(), target)
        assert found[0] <= 1.1 * expected[0] + 0.01
        assert found[2] == expected[2]

    def test_little_mass_is_on_all_classes(self, pair):
        assert pair[1].predict(TEST[0]).mass[:, -1].median() < 0.1


class TestUnknownInputs:
    def test_far_inputs_are_unknown(self, pair):
        classifier, network = pair
        assert network.predict(FAR).mass[:, -1].min() >= 0.9
        assert classifier(FAR).softmax(1).amax(1).median() > 0.9  # the classifier is certain of them

    def test_evaluation_threshold_and_conformal_sets(self, pair):
        _, network = pair
        result = rs.evaluate(network, TEST, {"far": FAR}, validation=VAL)
        assert result["ood"]["far"]["scores"]["credal width"]["auroc"] > 0.99
        assert "conformal" in result
        threshold = Threshold.keeping(0.95, network.predict(VAL[0]).entropy, "entropy")
        assert not threshold.known(network.predict(FAR).entropy).any()


def test_the_classifier_is_unchanged():
    classifier = plain().train()
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    labels = classifier(TRAIN[0]).argmax(1)
    rs.wrap(classifier, (TRAIN[0], labels), (VAL[0], classifier(VAL[0]).argmax(1)))
    assert classifier.training
    assert all(torch.equal(before[name], tensor) for name, tensor in classifier.state_dict().items())


def test_all_kinds_of_data(pair):
    classifier, network = pair
    expected = network.predict(TEST[0]).mass
    for read in (
        lambda part: TensorDataset(*part),
        lambda part: DataLoader(TensorDataset(*part), 64),
        lambda part: tuple(map(torch.Tensor.numpy, part)),
        lambda part: [(part[0][:100], part[1][:100]), (part[0][100:], part[1][100:])],
        lambda part: zip(part[0].split(100), part[1].split(100), strict=True),  # a stream
    ):
        again = rs.wrap(classifier, read(TRAIN), read(VAL))
        assert torch.allclose(again.predict(TEST[0]).mass, expected, atol=1e-4)


class TestDataModules:
    @staticmethod
    def module(**loaders):
        lightning = pytest.importorskip("lightning")
        return type("Digits", (lightning.LightningDataModule,), loaders)()

    def test_loaders_of_a_data_module(self, pair):
        classifier, network = pair
        held_out: dict[str, Any] = {}
        module = self.module(
            setup=lambda self, stage: held_out.update(val=DataLoader(TensorDataset(*VAL), 64)),
            train_dataloader=lambda self: DataLoader(TensorDataset(*TRAIN), 64),
            val_dataloader=lambda self: held_out["val"],
        )
        again = rs.wrap(classifier, module)
        expected = network.predict(TEST[0]).mass
        assert torch.allclose(again.predict(TEST[0]).mass, expected, atol=1e-4)
        with pytest.raises(RandomSetError, match="validation data given twice; got a data module and val"):
            rs.wrap(classifier, module, VAL)

    def test_without_validation_data(self, pair):
        module = self.module(train_dataloader=lambda self: DataLoader(TensorDataset(*TRAIN), 64))
        with pytest.raises(RandomSetError, match="the data module has no validation data; got Digits"):
            rs.wrap(pair[0], module)


def test_inputs_and_classes_are_noted(pair):
    classifier, network = pair
    assert network.input_spec.shape == (64,)
    assert network.notes["largest_input"] == pytest.approx(TRAIN[0].abs().max().item())
    named: Any = TensorDataset(*TRAIN)
    named.classes = load_digits().target_names.astype("U5").tolist()
    assert rs.wrap(classifier, named, VAL).classes == tuple("0123456789")
    assert rs.wrap(classifier, named, VAL, classes="abcdefghij").classes == tuple("abcdefghij")


def test_what_it_costs_is_logged(pair, caplog):
    with caplog.at_level(logging.INFO, "randomset"):
        rs.wrap(pair[0], TRAIN, VAL, reliability="gaussians", max_bytes=1000)
    assert "Calibrated on 450 samples by SoftmaxTemperature" in caplog.text
    assert "Reliability (gaussians) fitted on 450 validation samples" in caplog.text


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:no training samples of"
)  # an untrained classifier may not use all classes
def test_hugging_face():
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    classifier = BertForSequenceClassification(BertConfig(vocab_size=50, num_labels=3, **sizes)).eval()
    ids = torch.randint(5, 50, (80, 12))
    with torch.no_grad():
        labels = classifier(input_ids=ids).logits.argmax(1)
    batches = [
        {"input_ids": part, "labels": label}
        for part, label in zip(ids.split(20), labels.split(20), strict=True)
    ]
    with pytest.warns(RandomSetWarning, match="40 of 40 validation samples are also training samples"):
        rs.wrap(classifier, batches, batches[:2])
    network = rs.wrap(classifier, batches[:2], batches[2:])
    assert network.replaced_layer == "classifier"
    found = torch.cat([network.predict({"input_ids": part}).labels for part in ids.split(20)])
    assert torch.equal(found, labels)


NAMES = np.array(["red", "rosé", "white"])
ORDER = np.random.default_rng(0).permutation(178)
WINES = [(load_wine().data[rows], NAMES[load_wine().target[rows]]) for rows in np.split(ORDER, (88, 133))]
"""Training, validation and test samples."""


class TestEstimators:
    @pytest.mark.parametrize("kind", ["linear", "forest"])
    def test_labels_of_any_type(self, kind):
        estimator = {
            "linear": make_pipeline(StandardScaler(), LogisticRegression()),
            "forest": RandomForestClassifier(30, random_state=0),
        }[kind].fit(*WINES[0])
        network = rs.wrap(estimator, *WINES[:2])
        answer = network.predict(WINES[2][0])
        assert network.classes == ("red", "rosé", "white")
        assert answer.label_names == estimator.predict(WINES[2][0]).tolist()
        assert answer.mass[:, -1].median() < 0.1
        far = far_from(torch.tensor(WINES[0][0])).numpy()  # the features are of very different scales
        assert network.predict(far).mass[:, -1].min() >= 0.9
        labels = torch.tensor(np.searchsorted(NAMES, WINES[2][1]))
        result = rs.evaluate(network, (torch.tensor(WINES[2][0]), labels), {"far": far})
        assert result["test"]["accuracy"] == (estimator.predict(WINES[2][0]) == WINES[2][1]).mean()

    def test_the_scale_of_a_feature_does_not_matter(self):
        """Nor its unit: what the estimator sees is exact."""
        scales = 10.0 ** np.arange(-6, 7)
        arrays = [(inputs * scales, labels) for inputs, labels in WINES]
        estimators = [make_pipeline(StandardScaler(), LogisticRegression()) for _ in range(2)]
        pairs = zip(estimators, (WINES, arrays), strict=True)
        masses = [
            rs.wrap(estimator.fit(*data[0]), *data[:2]).predict(data[2][0]).mass for estimator, data in pairs
        ]
        assert torch.allclose(masses[0], masses[1], atol=1e-3)

    def test_whole_numbers_and_data_frames(self):
        pandas = pytest.importorskip("pandas")
        names = load_wine().feature_names
        frames = [(pandas.DataFrame(inputs.round(), columns=names), labels) for inputs, labels in WINES]
        estimator = make_pipeline(StandardScaler(), LogisticRegression()).fit(*frames[0])
        network = rs.wrap(estimator, *frames[:2])
        whole = WINES[2][0].round().astype(int)
        assert network.predict(whole).label_names == estimator.predict(frames[2][0]).tolist()
        assert torch.allclose(network.predict(frames[2][0]).mass, network.predict(whole).mass)

    def test_errors(self):
        estimator = RandomForestClassifier(3).fit(*WINES[0])
        inputs, labels = WINES[1]
        with pytest.raises(LabelError, match="unknown class in the labels; got green"):
            rs.wrap(estimator, WINES[0], (inputs, np.full(len(labels), "green")))
        with pytest.raises(RandomSetError, match="already predicts random sets"):
            rs.wrap(rs.RandomSetClassifier(), *WINES[:2])
        with pytest.raises(RandomSetError, match="the estimator is not fitted"):
            rs.wrap(LogisticRegression(), *WINES[:2])
        network, broken = rs.wrap(estimator, *WINES[:2]), WINES[2][0][:5].copy()
        broken[3, 0] = np.nan  # which a forest takes
        with pytest.raises(RandomSetError, match="the inputs are not finite; got NaN or infinity in input 3"):
            network.predict(broken)
        with pytest.raises(ShapeError, match=r"are sparse; got csr_array; .*Pass inputs.toarray\(\)"):
            rs.wrap(estimator, (scipy.sparse.csr_array(WINES[0][0]), WINES[0][1]), WINES[1])
        with pytest.raises(ShapeError, match="must be numbers; got could not convert string to float"):
            rs.wrap(estimator, (WINES[0][0].astype(str) + "x", WINES[0][1]), WINES[1])


class TestMistakes:
    def test_no_validation_data(self, pair):
        with pytest.raises(
            RandomSetError, match=r"no validation data given.*overconfident on samples that it has seen"
        ):
            rs.wrap(pair[0], TRAIN)

    def test_too_few_validation_samples(self, pair):
        with pytest.raises(RandomSetError, match="too few validation samples to wrap a classifier; got 10"):
            rs.wrap(pair[0], TRAIN, (VAL[0][:10], VAL[1][:10]))

    def test_labels_of_more_classes(self, pair):
        for train, val in ((TRAIN, (VAL[0], VAL[1] + 1)), ((TRAIN[0], TRAIN[1] + 1), VAL)):
            with pytest.raises(
                LabelError, match="more classes than the classifier; got 11 or more; expected 10"
            ):
                rs.wrap(pair[0], train, val)
        with pytest.raises(RandomSetError, match="different number of classes; got 10 outputs"):
            rs.wrap(pair[0], TRAIN, VAL, classes="abcd")

    def test_features_that_cannot_be_reached(self):
        with pytest.raises(RandomSetError, match=r"head \(4 → 3\), head_dist \(4 → 3\).*layer='head'"):
            rs.wrap(TwoHeads(), TRAIN, VAL)

        class Normalised(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(64, 10)

            def forward(self, inputs):
                return self.head(inputs).softmax(-1)

        with pytest.raises(RandomSetError, match="changes the output of its last layer"):
            rs.wrap(Normalised(), TRAIN, VAL)
        with pytest.raises(RandomSetError, match="cannot wrap this classifier; got SimpleNamespace"):
            rs.wrap(SimpleNamespace(), TRAIN, VAL)

    def test_features_that_are_not_finite(self, pair):
        broken = VAL[0].clone()
        broken[3] = torch.nan
        with pytest.raises(
            RandomSetError, match=r"outputs for the validation samples are not finite; got 1 of 450"
        ):
            rs.wrap(pair[0], TRAIN, (broken, VAL[1]))
        broken = TRAIN[0].clone()
        broken[3] = torch.inf
        with pytest.raises(RandomSetError, match="features of the training samples are not finite"):
            rs.wrap(pair[0], (broken, TRAIN[1]), VAL)

    def test_constant_features(self):
        classifier = plain()
        with torch.no_grad():
            classifier[0].weight.zero_()
        with pytest.raises(RandomSetError, match="features of all training samples are equal"):
            rs.wrap(classifier, TRAIN, VAL)

    def test_labels_in_another_order(self, pair):
        with pytest.warns(RandomSetWarning, match="below chance: are their labels in the order"):
            rs.wrap(pair[0], TRAIN, (VAL[0], (VAL[1] + 1) % 10))

    def test_kinds_of_reliability(self, pair, caplog):
        with caplog.at_level("INFO", "randomset"):
            with pytest.raises(RandomSetError, match="unknown kind of reliability; got magic"):
                rs.wrap(pair[0], TRAIN, VAL, reliability="magic")
            for none in ("none", None):
                wrong = rf"needs a reliability; got {none}; expected auto, neighbours or gaussians"
                with pytest.raises(RandomSetError, match=wrong):
                    rs.wrap(pair[0], TRAIN, VAL, reliability=none)
            with pytest.raises(RandomSetError, match="max_bytes must be a positive number"):
                rs.wrap(pair[0], TRAIN, VAL, max_bytes="16 MB")
        assert not caplog.text  # before any data are read

    @pytest.mark.parametrize("share", [1.0, 0.5])
    def test_validation_samples_that_are_training_samples(self, pair, share):
        shared = int(share * len(VAL[0]))
        seen = (
            torch.cat([TRAIN[0][:shared], VAL[0][shared:]]),
            torch.cat([TRAIN[1][:shared], VAL[1][shared:]]),
        )
        for train, val in ((TRAIN, seen), (DataLoader(TensorDataset(*TRAIN), 50, shuffle=True), seen)):
            with pytest.warns(
                RandomSetWarning, match=rf"{shared} of 450 validation samples are also training"
            ):
                rs.wrap(pair[0], train, val)

    def test_repeated_rows_of_a_table_are_no_mistake(self):
        def drawn(count, seed):
            draw = torch.Generator().manual_seed(seed)
            inputs = torch.randint(0, 2, (count, 3), generator=draw)
            return inputs.float(), inputs.sum(1).clamp_max(1)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the classifier may be worse than chance
            warnings.filterwarnings("error", ".*also training samples")
            rs.wrap(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), drawn(200, 0), drawn(100, 1))

    def test_a_class_without_training_samples(self, pair):
        kept = TRAIN[1] < 9
        with pytest.warns(RandomSetWarning, match=r"no training samples of 1 of 10 classes \(9\)"):
            rs.wrap(pair[0], (TRAIN[0][kept], TRAIN[1][kept]), VAL)

    def test_data_that_cannot_be_read(self, pair):
        for data in ("digits.csv", TRAIN[0]):
            with pytest.raises(
                RandomSetError, match=f"cannot read the labelled data; got {type(data).__name__}"
            ):
                rs.wrap(pair[0], data, VAL)
        with pytest.raises(LabelError, match=r"class indices; got 0\.5; expected whole numbers from 0 to 9"):
            rs.wrap(pair[0], TRAIN, (VAL[0], torch.full_like(VAL[0][:, 0], 0.5)))
