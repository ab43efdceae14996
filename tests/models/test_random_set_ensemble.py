"""Ensembles of random-set networks: the mean of their masses, and Dempster's rule."""

import dataclasses
import shutil
import warnings

import pytest
import torch
from torch import nn

import randomset as rs
from randomset import Budget, RandomSetEnsemble, RandomSetNetwork, backbones
from randomset.belief.measures import entropy
from randomset.errors import FileFormatError, RandomSetError
from randomset.models import BeliefTemperature, Softmax, WrappedClassifier, load
from randomset.models.ensemble import ensemble_of
from randomset.serving.export import Deployed, export_onnx
from randomset.training import TrainConfig, train
from tests.models.conftest import X, Y, body, data, make, random_set_member

PAIR = Budget.from_sets([{"a", "b"}], ["a", "b", "c"])


def constant(budget, belief):
    """Return a network whose beliefs do not depend on the input."""
    member = RandomSetNetwork(nn.Identity(), budget, in_features=2)
    with torch.no_grad():
        layer = member.head.layers[-1]
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor(belief).logit())
    return member


class TestMean:
    def test_by_hand(self):
        """Masses of a, b, c, {a, b}, Θ: (0.5, 0.1, 0, 0.2, 0.2) and (0.1, 0.1, 0.3, 0.3, 0.2)."""
        members = [constant(PAIR, [0.5, 0.1, 1e-9, 0.8]), constant(PAIR, [0.1, 0.1, 0.3, 0.5])]
        answer = RandomSetEnsemble(members).predict(X[:1])
        assert torch.allclose(answer.mass, torch.tensor([[0.3, 0.1, 0.15, 0.25, 0.2]]), atol=1e-6)
        assert torch.allclose(answer.lower, torch.tensor([[0.3, 0.1, 0.15]]), atol=1e-6)
        assert torch.allclose(answer.upper, torch.tensor([[0.75, 0.55, 0.35]]), atol=1e-6)
        first = torch.tensor([0.5 + 0.1 + 0.2 / 3, 0.1 + 0.1 + 0.2 / 3, 0.2 / 3])
        second = torch.tensor([0.1 + 0.15 + 0.2 / 3, 0.1 + 0.15 + 0.2 / 3, 0.3 + 0.2 / 3])
        information = entropy((first + second) / 2) - (entropy(first) + entropy(second)) / 2
        assert torch.allclose(answer.disagreement, information, atol=1e-5)
        assert not answer.is_discounted

    def test_sets_of_all_members(self):
        other = Budget.from_sets([{"b", "c"}], ["a", "b", "c"])
        ensemble = RandomSetEnsemble(
            [constant(PAIR, [0.5, 0.1, 1e-9, 0.8]), constant(other, [0.1, 0.1, 0.3, 0.8])]
        )
        answer = ensemble.predict(X[:1])
        assert answer.budget == ensemble.budget.with_universal_set()
        assert answer.budget.set_names[3:] == ("{a, b}", "{b, c}", "{a, b, c}")
        assert torch.allclose(answer.mass, torch.tensor([[0.3, 0.1, 0.15, 0.1, 0.2, 0.15]]), atol=1e-6)

    def test_reliabilities(self):
        members = [random_set_member(seed) for seed in range(3)]
        answers = [member.predict(2 * X) for member in members]
        answer = RandomSetEnsemble(members).predict(2 * X)
        assert torch.allclose(answer.mass, torch.stack([each.mass for each in answers]).mean(0), atol=1e-6)
        r = torch.stack([each.reliability for each in answers]).mean(0)
        assert torch.allclose(answer.reliability, r)
        assert answer.familiar_from == pytest.approx(sum(each.familiar_from for each in answers) / 3)
        assert RandomSetEnsemble(members).familiar_from == pytest.approx(answer.familiar_from)
        assert RandomSetEnsemble([RandomSetNetwork(body(), PAIR)]).familiar_from is None
        assert (answer.mass[:, -1] >= 1 - r - 1e-6).all()

    def test_members_that_know_nothing_may_disagree(self):
        """Far away, all discounted members are ignorant; the disagreement is that of their own beliefs."""
        ensemble = RandomSetEnsemble([random_set_member(seed) for seed in range(3)])
        far = ensemble.predict(1000 * X)
        assert (far.reliability < 0.05).all()
        plain = torch.stack(
            [member.answers(member.features(1000 * X))[0].pignistic.detach() for member in ensemble.members]
        )
        assert torch.allclose(far.disagreement, entropy(plain.mean(0)) - entropy(plain).mean(0), atol=1e-5)
        assert far.disagreement.mean() > 0.1

    def test_one_member(self):
        member = random_set_member(0)
        found, expected = RandomSetEnsemble([member]).predict(X), member.predict(X)
        assert torch.allclose(found.mass, expected.mass)
        assert found.disagreement.abs().max() < 1e-5

    def test_options_reach_the_members(self):
        ensemble = make("random-set-ensemble")
        assert not ensemble.predict(X, discounted=False).is_discounted
        plain = ensemble.predict(X, calibrated=False, discounted=False, repair="projection")
        members = [
            m.predict(X, calibrated=False, discounted=False, repair="projection") for m in ensemble.members
        ]
        assert torch.allclose(plain.mass, torch.stack([each.mass for each in members]).mean(0), atol=1e-6)


class TestDempster:
    def test_by_hand(self):
        """Masses of a and b and Θ: (0.6, 0.2, 0.2) and (0.5, 0, 0.5).

        a: 0.6 · 0.5 + 0.6 · 0.5 + 0.2 · 0.5 = 0.7; b: 0.2 · 0.5 = 0.1; Θ: 0.1; conflict 0.1.
        """
        budget = Budget.singletons("ab")
        members = [constant(budget, [0.6, 0.2]), constant(budget, [0.5, 1e-9])]
        answer = RandomSetEnsemble(members, "dempster").predict(X[:1])
        assert torch.allclose(answer.mass, torch.tensor([[7, 1, 1]]) / 9, atol=2e-3)  # discounted by 0.001

    def test_intersections_are_in_the_budget(self):
        wide = Budget.from_sets([{0, 1, 2}, {1, 2, 3}], 4)
        ensemble = RandomSetEnsemble([constant(wide, [0.1] * 4 + [0.5, 0.5])] * 2, "dempster")
        assert (1, 2) in ensemble.budget.sets
        assert ensemble.predict(X).budget == ensemble.budget

    def test_members_that_are_certain_of_different_classes(self):
        budget = Budget.singletons("ab")
        members = [constant(budget, [1 - 1e-7, 1e-7]), constant(budget, [1e-7, 1 - 1e-7])]
        answer = RandomSetEnsemble(members * 3, "dempster").predict(X[:1])
        assert torch.allclose(answer.pignistic, torch.tensor([[0.5, 0.5]]), atol=1e-2)

    def test_reliability_is_the_mean(self):
        members = [random_set_member(seed) for seed in range(2)]
        found = RandomSetEnsemble(members, "dempster").predict(X)
        mean = RandomSetEnsemble(members).predict(X)
        assert torch.equal(found.reliability, mean.reliability)
        assert found.familiar_from == mean.familiar_from
        assert torch.equal(found.disagreement, mean.disagreement)


class TestCalibration:
    def test_of_the_combination(self):
        """The mean of members that err on different samples is too unsure of what it gets right."""
        members = [constant(Budget.singletons("ab"), [0.7, 0.3]) for _ in range(3)]
        ensemble = RandomSetEnsemble(members)
        inputs, labels = torch.zeros(1000, 2), (torch.arange(1000) % 10 == 0).long()
        report = ensemble.calibrate((inputs, labels))
        assert report.kind == "PignisticTemperature"
        assert report.nll[1] < report.nll[0]
        assert ensemble.predict(inputs).pignistic[0, 0] == pytest.approx(0.9, abs=0.01)
        assert ensemble.predict(inputs, calibrated=False).pignistic[0, 0] == pytest.approx(0.7, abs=1e-3)
        assert rs.calibrate(ensemble, (inputs, labels)).nll == pytest.approx(
            report.nll
        )  # from the start again

    def test_the_reliability_stays(self):
        ensemble = RandomSetEnsemble([random_set_member(seed) for seed in range(2)])
        before = ensemble.predict(X)
        ensemble.calibrate((X, Y))
        after = ensemble.predict(X)
        assert torch.equal(after.reliability, before.reliability)
        assert after.familiar_from == before.familiar_from
        assert torch.equal(after.disagreement, before.disagreement)
        assert torch.equal(after.labels, before.labels)


class TestMistakes:
    def test_no_random_set_networks(self):
        with pytest.raises(RandomSetError, match="must be random-set networks; got Softmax"):
            RandomSetEnsemble([random_set_member(0), Softmax(body(), 3)])

    def test_other_classes(self):
        other = Budget.from_sets([{"a", "b"}], ["b", "a", "c"])
        with pytest.raises(RandomSetError, match="different classes"):
            RandomSetEnsemble([RandomSetNetwork(body(), PAIR), RandomSetNetwork(body(), other)])

    def test_unknown_combination(self):
        with pytest.raises(RandomSetError, match="unknown combination; got yager; expected mean or dempster"):
            RandomSetEnsemble([random_set_member(0)], "yager")

    def test_methods_without_members(self):
        assert ensemble_of("rsnn") == ensemble_of("random-set-ensemble") == "random-set-ensemble"
        with pytest.raises(RandomSetError, match="no members; got members for temperature"):
            ensemble_of("temperature")


def test_wrapped_classifiers_can_be_members():
    members = [WrappedClassifier.from_classifier(Softmax(body(seed), 3)) for seed in range(2)]
    found = RandomSetEnsemble(members).predict(X)
    expected = rs.models.Ensemble([Softmax(body(seed), 3) for seed in range(2)])
    assert found.pignistic.shape == expected.predict(X).probabilities.shape
    assert torch.allclose(
        found.pignistic, (members[0](X).softmax(1) + members[1](X).softmax(1)) / 2, atol=1e-6
    )


def test_a_random_set_like_any_other(tmp_path):
    answer = make("random-set-ensemble").predict(X)
    answer.save(tmp_path / "answer.safetensors")
    again = rs.RandomSet.load(tmp_path / "answer.safetensors")
    for one in (again, answer.to("cpu"), rs.RandomSet.concatenate([answer[:30], answer[30:]])):
        assert torch.equal(one.mass, answer.mass)
        assert torch.equal(one.disagreement, answer.disagreement)
        assert torch.equal(one.reliability, answer.reliability)
    assert torch.equal(answer[3].disagreement, answer.disagreement[3])
    assert answer.to(torch.double).disagreement.dtype == torch.double
    assert "disagreement" in answer.numpy()
    assert answer.discount(0.5).disagreement is answer.disagreement
    assert rs.RandomSet.concatenate([answer[:1], random_set_member(0).predict(X[:1])]).disagreement is None


class TestFiles:
    def test_the_combination_and_calibration_are_kept(self, tmp_path):
        ensemble = make("random-set-ensemble dempster")
        ensemble.save(tmp_path)
        again = load(tmp_path)
        assert isinstance(again, RandomSetEnsemble)
        assert (again.combination, again.budget) == ("dempster", ensemble.budget)
        assert Budget.load(tmp_path / "budget.json") == ensemble.budget
        assert torch.equal(again.predict(X).mass, ensemble.predict(X).mass)

    def test_a_backbone_of_the_user_is_copied_for_each_member(self, tmp_path):
        def net(seed):
            torch.manual_seed(seed)
            return nn.Sequential(nn.Linear(2, 8), nn.Tanh())

        ensemble = RandomSetEnsemble([RandomSetNetwork(net(s), PAIR, in_features=8) for s in range(2)])
        ensemble.save(tmp_path)
        again = load(tmp_path, backbone=net(7))
        assert torch.equal(again.predict(X).mass, ensemble.predict(X).mass)

    def test_a_calibration_of_another_kind(self, tmp_path):
        ensemble = RandomSetEnsemble([random_set_member(0)])
        ensemble.calibration = BeliefTemperature(2.0)
        ensemble.save(tmp_path)
        with pytest.raises(FileFormatError, match="unknown calibration"):
            load(tmp_path)

    def test_the_form_of_the_inputs_is_that_of_the_members(self):
        members = [random_set_member(seed) for seed in range(2)]
        assert RandomSetEnsemble(members).input_spec is None
        rs.fit(members[0], (X, Y), epochs=1, progress=False)
        rs.fit(members[1], (X, Y), epochs=1, progress=False)
        assert RandomSetEnsemble(members).input_spec == members[0].input_spec is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", ["random-set-ensemble", "random-set-ensemble dempster"])
def test_onnx_agrees(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    deployed = Deployed(make(name).eval())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert export_onnx(deployed, X[:4], tmp_path / "model.onnx") < 1e-5
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    for inputs in (X[:1], X, 4 * X):
        names = ["mass", "probabilities", "lower", "upper", "entropy", "reliability", "disagreement"]
        expected = deployed(inputs)
        for key, found in zip(names, session.run(names, {"inputs": inputs.numpy()}), strict=True):
            assert torch.allclose(torch.from_numpy(found), expected[key], atol=1e-5), key


# -- training ------------------------------------------------------------------------------------------

QUICK = TrainConfig(method="random-set-ensemble", members=2, epochs=2, num_sets=1, seed=3)
NAMES = ("a", "b", "c")
BATCHES = {"val": data(60, seed=1), "progress": False}


def images():
    return X.reshape(-1, 1, 1, 2).repeat(1, 1, 4, 2), Y


@pytest.mark.slow
class TestTraining:
    def test_members_share_one_budget_and_differ(self, tmp_path, caplog):
        caplog.set_level("INFO", "randomset.training")
        inputs, labels = images()
        val = (inputs[:60], labels[:60])
        ensemble = train(QUICK, inputs, labels, NAMES, val, out=tmp_path, progress=False).model
        assert isinstance(ensemble, RandomSetEnsemble)
        first, second = ensemble.members
        assert first.budget == second.budget == ensemble.budget
        assert len(first.budget) == 4
        assert not torch.equal(first.head.layers[-1].weight, second.head.layers[-1].weight)
        starts = [
            torch.load(tmp_path / member / "first" / "checkpoints" / "last.ckpt", weights_only=True)[
                "state_dict"
            ]
            for member in ("member-0", "member-1")
        ]
        name = next(name for name, value in starts[0].items() if "backbone" in name and value.dim() == 4)
        assert (starts[0][name] - starts[1][name]).abs().mean() > 0.02  # they started from other weights
        messages = [record.getMessage() for record in caplog.records]
        assert sum(text.startswith("Chose") for text in messages) == 1
        assert ensemble.calibration is not None
        assert first.reliability is not None
        for member in ("member-0", "member-1"):  # each starts from a plain network of its own
            assert (tmp_path / member / "first").is_dir()

    def test_resumed_in_any_member(self, tmp_path):
        config = dataclasses.replace(QUICK, members=3)
        whole = train(config, X, Y, NAMES, out=tmp_path / "whole", **BATCHES).model
        for member in range(3):
            place = tmp_path / f"cut-{member}"
            for done in range(member):
                shutil.copytree(tmp_path / "whole" / f"member-{done}", place / f"member-{done}")
            if member:  # a process that was killed in a later member
                shutil.copytree(
                    tmp_path / "whole" / f"member-{member}" / "checkpoints",
                    place / f"member-{member}" / "checkpoints",
                )
            else:
                place.mkdir()
            again = train(config, X, Y, NAMES, out=place, resume=True, **BATCHES).model
            for name, tensor in whole.state_dict().items():
                assert torch.equal(tensor, again.state_dict()[name]), (member, name)

    def test_a_given_budget(self):
        budget = Budget.from_sets([{"a", "c"}], NAMES)
        ensemble = train(QUICK, X, Y, NAMES, budget=budget, **BATCHES).model
        assert all(member.budget == budget for member in ensemble.members)

    def test_a_deep_ensemble_with_a_number_of_members(self):
        config = TrainConfig(method="ensemble", members=3, epochs=1)
        assert len(train(config, X, Y, NAMES, **BATCHES).model.members) == 3


def test_backbones_of_images():
    torch.manual_seed(0)
    members = [RandomSetNetwork(backbones.small_cnn(1, 8), PAIR) for _ in range(2)]
    assert RandomSetEnsemble(members).predict(torch.rand(3, 1, 8, 8)).pignistic.shape == (3, 3)
