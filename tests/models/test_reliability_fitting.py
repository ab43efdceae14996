"""Fitting a reliability keeps the likelihood of known inputs, and discounts unknown ones."""

import copy
import shutil

import pytest
import torch
from torch import nn

import randomset as rs
from randomset.backbones import small_cnn
from randomset.backbones.inputs import InputSpec
from randomset.errors import LabelError, RandomSetError, RandomSetWarning
from randomset.models import load
from randomset.models.reliability_fitting import Reservoir
from randomset.models.temperature import measured
from tests.models.test_reliability import blobs


@pytest.fixture(scope="module")
def trained():
    network = rs.RandomSetNetwork(nn.Sequential(nn.Linear(8, 32), nn.ReLU()), rs.Budget.powerset(3))
    report = rs.fit(network, blobs(600), blobs(200, 1), epochs=10, reliability="auto", progress=False)
    return network, report


def test_known_inputs_keep_their_likelihood(trained):
    network, report = trained
    assert report.reliability.nll[1] <= 1.1 * report.reliability.nll[0]
    assert report.reliability.ece[1] <= report.reliability.ece[0] + 0.02
    assert "Reliability (auto) fitted on 200 validation samples" in str(report)
    inputs, labels = blobs(600, 2)
    target = nn.functional.one_hot(labels, 3).double()
    plain = measured(network.predict(inputs, discounted=False).pignistic.double(), target)
    discounted = measured(network.predict(inputs).pignistic.double(), target)
    assert discounted[0] <= 1.1 * plain[0] + 0.01
    assert discounted[2] == plain[2]


def test_far_inputs_are_unknown(trained):
    network, _ = trained
    inputs, _ = blobs(100, 2)
    assert network.predict(20 * inputs).mass[:, -1].min() > 0.9
    assert network.predict(inputs).reliability.median() > 0.9


def test_training_again_forgets_it(trained):
    network = rs.RandomSetNetwork(nn.Linear(8, 8), rs.Budget.powerset(3))
    network.reliability = trained[0].reliability
    rs.fit(network, blobs(100), epochs=1, progress=False)
    assert network.reliability is None


def test_inputs_in_another_layout():
    images, labels = torch.rand(120, 3, 6, 6), torch.arange(120) % 3
    network = rs.RandomSetNetwork(small_cnn(3, 6), rs.Budget.powerset(3))
    network.notes = InputSpec.of(images).to_notes()
    last = images.permute(0, 2, 3, 1)
    expected = copy.deepcopy(network).fit_reliability((images, labels), (images[:60], labels[:60]))
    found = network.fit_reliability((last, labels), (last[:60].numpy(), labels[:60]))
    assert found.mean == pytest.approx(expected.mean, abs=1e-5)


def test_set_valued_labels_and_samples_without_one():
    network = rs.RandomSetNetwork(nn.Linear(8, 8), rs.Budget.powerset(3))
    inputs, labels = blobs(200)
    masks = nn.functional.one_hot(labels, 3).bool()
    masks[::2, 0] = True
    network.fit_reliability((inputs, masks), blobs(60, 1))
    assert network.predict(inputs).is_discounted
    labels[:50] = -100
    report = network.fit_reliability((inputs, labels), (inputs, labels))
    assert report.samples == 150


def test_errors():
    network = rs.RandomSetNetwork(nn.Linear(8, 8), rs.Budget.powerset(3))
    with pytest.raises(RandomSetError, match="too few validation samples"):
        network.fit_reliability(blobs(100), blobs(5))
    with pytest.raises(RandomSetError, match="max_bytes must be a positive number; got None"):
        network.fit_reliability(blobs(100), blobs(50), max_bytes=None)
    with pytest.raises(RandomSetError, match="nothing to fit"):
        network.fit_reliability(blobs(100), blobs(50), kind="none")
    wrong = r"no validation data given; got reliability='neighbours'; expected .*20 samples or more"
    with pytest.raises(RandomSetError, match=wrong):
        rs.fit(network, blobs(100), epochs=1, reliability="neighbours")
    with pytest.raises(RandomSetError, match="only random-set networks"):
        rs.fit(
            rs.models.Softmax(nn.Linear(8, 8), 3), blobs(100), blobs(50), epochs=1, reliability="gaussians"
        )
    with pytest.raises(LabelError, match="no training data"):
        Reservoir(3).samples()


@pytest.mark.parametrize("val", [None, 10])
def test_without_enough_validation_data_there_is_none_by_default(val, caplog):
    network = rs.RandomSetNetwork(nn.Linear(8, 8), rs.Budget.powerset(3))
    with caplog.at_level("INFO", "randomset.training"):
        report = rs.fit(network, blobs(100), None if val is None else blobs(val), epochs=1, progress=False)
    assert report.reliability is None
    assert network.reliability is None
    assert ("too few validation samples" in caplog.text) == (val is not None)
    assert ("The reliability was not fitted: no validation data" in caplog.text) == (val is None)


@pytest.mark.parametrize("none", ["none", None])
@pytest.mark.filterwarnings("error")
def test_none_by_request(none, caplog):
    network = rs.RandomSetNetwork(nn.Linear(8, 8), rs.Budget.powerset(3))
    with caplog.at_level("INFO", "randomset.training"):
        rs.fit(network, blobs(100), blobs(50, 1), epochs=1, reliability=none, progress=False)
    assert network.reliability is None
    assert "reliability" not in caplog.text


def test_a_default_that_cannot_be_fitted_is_a_warning():
    class Constant(nn.Linear):
        def forward(self, inputs):
            return self.bias.expand(len(inputs), -1)

    network = rs.RandomSetNetwork(Constant(8, 8), rs.Budget.powerset(3))
    with pytest.warns(RandomSetWarning, match=r"no reliability was fitted, .*: the features of all training"):
        report = rs.fit(network, blobs(100), blobs(50, 1), epochs=1, progress=False)
    assert report.reliability is None
    with pytest.raises(RandomSetError, match="the features of all training samples are equal"):
        rs.fit(network, blobs(100), blobs(50, 1), epochs=1, reliability="gaussians", progress=False)


def test_classes_with_few_samples_are_less_reliable():
    network = rs.RandomSetNetwork(nn.Linear(8, 8), rs.Budget.powerset(3))
    inputs, labels = blobs(600)
    kept = (labels > 0) | (torch.rand(600) < 0.1)
    network.fit_reliability((inputs[kept], labels[kept]), blobs(90, 1))
    counts = labels[kept].bincount().double()
    assert torch.allclose(network.reliability.support.double(), (counts / counts.mean()).sqrt().log())


def test_one_pass_over_many_batches():
    reservoir = Reservoir(100)
    for _ in range(50):
        labels = torch.randint(0, 5, (64,))
        reservoir.add(torch.randn(64, 4), labels)
        assert reservoir._held <= 200
    features, labels = reservoir.samples()
    assert features.shape == (100, 4)
    assert labels.bincount().min() >= 15


def test_gaussians_of_all_classes_without_a_bank():
    """The size of the bank does not decide how many samples the Gaussians, which need none, are fitted to."""
    network = rs.RandomSetNetwork(nn.Linear(8, 8), rs.Budget.powerset(3)).eval()
    found = []
    for max_bytes in (1, 16 * 2**20):
        network.fit_reliability(blobs(600), blobs(90, 1), kind="gaussians", max_bytes=max_bytes)
        found.append(network.reliability.means)
    assert torch.equal(*found)


def test_known_inputs_are_familiar(trained):
    network, report = trained
    inputs, _ = blobs(400, 5)
    assert report.reliability.familiar_from == pytest.approx(float(network.reliability.familiar_from))
    assert network.predict(inputs).familiar.float().mean() > 0.85
    assert not network.predict(20 * inputs).familiar.any()


def test_few_samples_make_wide_intervals():
    width = {}
    for samples in (30, 3000):
        network = rs.RandomSetNetwork(nn.Linear(8, 8), rs.Budget.powerset(3)).eval()
        network.fit_reliability(blobs(samples), blobs(60, 1))
        width[samples] = network.reliability
    assert width[30].imprecision.tolist() == [1, 1, 1]  # 12 / √10 > 1
    assert width[3000].imprecision.mean().item() == pytest.approx(12 / 1000**0.5, rel=0.05)


def test_a_class_without_training_samples():
    inputs, labels = blobs(600)
    network = rs.RandomSetNetwork(nn.Sequential(nn.Linear(8, 32), nn.ReLU()), rs.Budget.powerset(3))
    with pytest.warns(RandomSetWarning, match=r"no training samples of 1 of 3 classes \(2\)"):
        network.fit_reliability((inputs, labels.clamp_max(1)), blobs(200, 1))
    assert float(network.reliability.evidence[2]) <= float(network.reliability.evidence[:2].min())


class TestPrediction:
    """What `predict` returns does not depend on how inputs come, or on how the network is run."""

    INPUTS = torch.cat([blobs(30, 3)[0], 20 * blobs(30, 4)[0]])

    def test_one_at_a_time_as_in_a_batch(self, trained):
        network, _ = trained
        whole = network.predict(self.INPUTS)
        alone = rs.RandomSet.concatenate([network.predict(x[None]) for x in self.INPUTS])
        torch.testing.assert_close(alone.mass, whole.mass, rtol=0, atol=1e-6)
        torch.testing.assert_close(alone.reliability, whole.reliability, rtol=0, atol=1e-6)

    def test_relabelling_commutes(self, trained):
        """A network whose classes have other numbers gives the same masses to the same sets."""
        network, _ = trained
        order = torch.tensor([2, 0, 1])  # class c becomes order[c]
        budget = network.budget
        other = rs.RandomSetNetwork(copy.deepcopy(network.backbone), budget).eval()
        position = {focal: place for place, focal in enumerate(budget.sets)}
        moved = torch.tensor([position[tuple(sorted(order[list(focal)].tolist()))] for focal in budget.sets])
        with torch.no_grad():
            for name in ("weight", "bias"):
                getattr(other.head.layers[-1], name)[moved] = getattr(network.head.layers[-1], name)
        other.calibration = network.calibration
        first, (inputs, labels), (val, targets) = copy.deepcopy(network), blobs(600), blobs(200, 1)
        first.fit_reliability((inputs, labels), (val, targets))
        other.fit_reliability((inputs, order[labels]), (val, order[targets]))
        found, expected = other.predict(self.INPUTS), first.predict(self.INPUTS)
        torch.testing.assert_close(found.reliability, expected.reliability, rtol=0, atol=1e-4)
        torch.testing.assert_close(found.mass[:, moved], expected.mass, rtol=0, atol=1e-4)

    def test_streams(self, trained):
        """Batches are read once, for fitting as for predicting."""
        network, _ = trained
        expected = network.predict(self.INPUTS)
        found = network.predict(iter(self.INPUTS.split(7)))
        torch.testing.assert_close(found.mass, expected.mass, rtol=0, atol=1e-6)
        inputs, labels = blobs(600)
        again = copy.deepcopy(network)
        stream = zip(inputs.split(50), labels.split(50), strict=True)
        again.fit_reliability(stream, (pair for pair in [blobs(200, 1)]))
        found = again.predict(self.INPUTS)
        torch.testing.assert_close(found.reliability, expected.reliability, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision(self, trained, dtype, tmp_path):
        network, _ = trained
        half = copy.deepcopy(network).to(dtype)
        answer, expected = half.predict(self.INPUTS), network.predict(self.INPUTS)
        assert answer.mass.dtype == torch.float32
        assert (answer.familiar == expected.familiar).float().mean() > 0.9
        assert answer.mass[30:, -1].min() > 0.9
        assert (answer.mass - expected.mass).abs().mean() < 0.01
        half.save(tmp_path)
        again = load(tmp_path, backbone=nn.Sequential(nn.Linear(8, 32), nn.ReLU()))
        assert torch.equal(again.predict(self.INPUTS).mass, answer.mass)

    @pytest.mark.slow
    @pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
    def test_compiled(self, trained):
        network, _ = trained

        def prediction(inputs):
            answer = network.predict_batch(inputs)
            return answer.mass, answer.pignistic, answer.reliability, answer.familiar

        with torch.no_grad():
            found = torch.compile(prediction, fullgraph=True)(self.INPUTS)
            for got, want in zip(found, prediction(self.INPUTS), strict=True):
                torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("outliers", [1, 2, 5])
def test_outliers_do_not_make_every_input_reliable(outliers):
    network = rs.RandomSetNetwork(nn.Sequential(nn.Linear(8, 32), nn.ReLU()), rs.Budget.powerset(3))
    inputs, labels = blobs(180, 1)
    inputs[:outliers] = 40 * inputs[:outliers]
    rs.fit(network, blobs(600), (inputs, labels), epochs=10, progress=False)
    known, _ = blobs(200, 2)
    assert network.predict(known).familiar.float().mean() > 0.8
    assert network.predict(25 * known).mass[:, -1].min() > 0.9
