"""Every method through the same pipeline: it learns, detects unknown digits, resumes, and is saved."""

import numpy as np
import pytest
import torch

from randomset import backbones
from randomset.data import load_source
from randomset.errors import RandomSetError
from randomset.evaluation import evaluate
from randomset.models import Classifier, Ensemble, LaplaceBridge, Softmax, methods
from randomset.models import load as load_model
from randomset.training import TrainConfig, train
from tests.training.interruptions import interrupted_at

BASELINES = [name for name in methods() if name != "rsnn"]


@pytest.fixture(scope="module")
def digits():
    """Digits 0 to 7, split; and the others."""
    source = load_source("digits")
    known = (source.labels < 8).nonzero()[:, 0]
    part = source.part(known)
    rest, held, test = part.split(0.1, 0.2, seed=0)
    return part, rest, held, test, source.inputs[source.labels >= 8]


def trained(method, digits, epochs=12, **options):
    part, rest, held, _, _ = digits
    config = TrainConfig(method=method, epochs=epochs, seed=0)
    return train(
        config,
        part.inputs,
        part.labels,
        part.classes[:8],
        rows=rest,
        val_rows=held,
        progress=False,
        **options,
    ).model


@pytest.mark.slow
@pytest.mark.parametrize("method", BASELINES)
def test_learns_digits_and_notices_unknown_ones(method, digits, tmp_path):
    """Above 95 % of the known ones; unknown ones are told with an AUROC well above chance."""
    part, _, _, test, unknown = digits
    model = trained(method, digits)
    result = evaluate(model, part.part(test), {"8 and 9": unknown}, classes=part.classes[:8])
    assert result["test"]["accuracy"] > 0.95
    scores = result["ood"]["8 and 9"]["scores"]
    assert scores["entropy"]["auroc"] > 0.85
    own = set(scores) & {"mutual information", "vacuity"}
    assert bool(own) == (method not in ("softmax", "temperature"))
    for score in own:
        assert scores[score]["auroc"] > 0.6
    model.notes = {"classes": list("01234567")}
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert isinstance(again, Classifier)
    assert (type(again), again.notes) == (type(model), model.notes)
    assert torch.equal(again.predict(unknown).probabilities, model.predict(unknown).probabilities)


@pytest.mark.slow
class TestResuming:
    def test_an_ensemble_goes_on_with_its_next_member(self, digits, tmp_path):
        with interrupted_at("Member 3"):
            trained("ensemble", digits, epochs=1, out=tmp_path)
        stamp = (tmp_path / "member-0" / "metrics.csv").stat().st_mtime_ns
        whole = trained("ensemble", digits, epochs=1)
        again = trained("ensemble", digits, epochs=1, out=tmp_path, resume=True)
        assert isinstance(again, Ensemble)
        assert len(again.members) == 5
        for name, tensor in whole.state_dict().items():
            assert torch.equal(tensor, again.state_dict()[name]), name
        assert (tmp_path / "member-0" / "metrics.csv").stat().st_mtime_ns == stamp

    def test_members_differ(self, digits):
        ensemble = trained("ensemble", digits, epochs=1)
        first, second = (member.layer.weight for member in ensemble.members[:2])
        assert not torch.equal(first, second)


class TestFiles:
    def test_files_that_are_none(self, tmp_path):
        with pytest.raises(RandomSetError, match="no model here"):
            load_model(tmp_path)
        (tmp_path / "model.safetensors").write_bytes(b"hello")
        with pytest.raises(RandomSetError, match="safetensors"):
            load_model(tmp_path)

    def test_a_header_that_lies(self, tmp_path):
        from safetensors.torch import save_file

        for header in ("{}", "[]", '{"format": "randomset.rival", "version": 1, "model": {"method": "x"}}'):
            save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"rival": header})
            with pytest.raises(RandomSetError, match=r"cannot build the model|does not hold a model"):
                load_model(tmp_path)

    def test_a_backbone_of_the_users_own(self, tmp_path):
        model = Softmax(torch.nn.Linear(2, 4), 3, in_features=4).eval()
        model.save(tmp_path)
        with pytest.raises(RandomSetError, match=r"not one of randomset.backbones; got Linear.*backbone=…"):
            load_model(tmp_path)
        again = load_model(tmp_path, backbone=torch.nn.Linear(2, 4))
        inputs = torch.randn(5, 2)
        assert torch.equal(again.predict(inputs).probabilities, model.predict(inputs).probabilities)

    @pytest.mark.parametrize("structure", ["kron", "full"])
    def test_a_posterior_is_kept(self, tmp_path, structure):
        torch.manual_seed(0)
        bridge = LaplaceBridge(Softmax(backbones.mlp(2, (8,)), 3).eval(), structure)
        inputs = torch.randn(50, 2)
        bridge.fit_posterior([(inputs, torch.arange(50) % 3)])
        bridge.save(tmp_path)
        assert torch.equal(
            load_model(tmp_path).predict(inputs).probabilities, bridge.predict(inputs).probabilities
        )


class TestMistakes:
    def test_unknown_methods(self):
        with pytest.raises(RandomSetError, match="unknown method; got magic"):
            TrainConfig(method="magic").checked()

    def test_set_valued_labels_are_for_random_sets(self):
        config = TrainConfig(method="softmax", epochs=1)
        with pytest.raises(RandomSetError, match="set-valued labels for softmax"):
            train(config, torch.zeros(4, 2), torch.ones(4, 3, dtype=torch.bool), ("a", "b", "c"))

    def test_a_temperature_needs_validation_data(self):
        config = TrainConfig(method="temperature", epochs=1)
        inputs, labels = torch.randn(40, 2), torch.arange(40) % 2
        with pytest.raises(RandomSetError, match="validation data"):
            train(config, inputs, labels, ("a", "b"), progress=False)


def test_inputs_as_arrays_and_bytes(digits):
    part = digits[0]
    model = Softmax(backbones.small_cnn(1, 8), 8, preprocess=None)
    as_array = model.predict(part.inputs[:5].numpy())
    assert np.allclose(as_array.probabilities, model.predict(part.inputs[:5]).probabilities)
