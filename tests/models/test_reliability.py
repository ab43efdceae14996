"""Reliability falls with every distance from the training data, and travels with the network."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from randomset import Budget, RandomSet, RandomSetNetwork
from randomset.errors import FileFormatError, RandomSetError, ShapeError
from randomset.models import Reliability, load
from randomset.models.reliability import (
    _nearest_mean,
    check_reliability,
    reliability_from_spec,
)

KINDS = ("auto", "neighbours", "gaussians")


def blobs(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points of three Gaussians in eight dimensions, and their classes."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    centres = 4 * torch.eye(8)[:3]
    return centres[labels] + torch.randn(count, 8, generator=draw), labels


def classes(features: torch.Tensor) -> torch.Tensor:
    """Return the predicted classes of points."""
    return features[:, :3].argmax(1)


def fitted(kind: str = "auto", **options) -> Reliability:
    features, labels = blobs(300)
    held_out, _ = blobs(90, 1)
    return Reliability.fit(features, labels, held_out, num_classes=3, kind=kind, **options)


@pytest.mark.parametrize("kind", KINDS)
class TestKinds:
    def test_known_inputs_are_reliable_and_far_ones_are_not(self, kind):
        module, (known, _) = fitted(kind), blobs(60, 2)
        r = module(known, classes(known))
        assert r.shape == (60,)
        assert ((r > 0) & (r <= 1)).all()
        assert r.median() > 0.99
        for far in (50 * known, known + 50, -50 * known):
            assert module(far, classes(far)).max() < 0.1

    def test_one_at_a_time_as_in_a_batch(self, kind):
        module, (known, _) = fitted(kind), blobs(7, 2)
        alone = torch.cat([module(x[None], classes(x[None])) for x in known])
        assert torch.allclose(alone, module(known, classes(known)), atol=1e-6)

    def test_relabelling_the_classes_changes_nothing(self, kind):
        features, labels = blobs(300)
        held_out, _ = blobs(90, 1)
        inverse = torch.tensor([1, 2, 0])
        other = Reliability.fit(features, inverse[labels], held_out, num_classes=3, kind=kind)
        relabelled = other(held_out, inverse[classes(held_out)])
        assert torch.allclose(relabelled, fitted(kind)(held_out, classes(held_out)), atol=1e-5)

    def test_precisions(self, kind):
        module, (known, _) = fitted(kind), blobs(9, 2)
        exact = module(known.double(), classes(known))
        assert exact.dtype == torch.float64
        assert torch.allclose(exact.float(), module(known, classes(known)), atol=1e-4)
        half = module(known.bfloat16(), classes(known))
        assert half.dtype == torch.float32


@given(st.integers(0, 2), st.floats(0, 20), st.floats(0, 20))
def test_farther_is_never_more_reliable(part, near, more):
    module = fitted()
    distances = module.median.repeat(2, 1)
    distances[0, part] += near
    distances[1, part] += near + more
    first, second = module.reliability_at(module.doubt(distances))
    assert second <= first


def test_by_hand():
    # Median 1 and 95 % quantile 3 of two distances; the length counts only beyond its quantile.
    module = Reliability("neighbours", 2, 2, 1)
    module.median.fill_(1)
    module.spread.fill_(2)
    module.offset.fill_(1)
    distances = torch.tensor([[1.0, 1.0], [3.0, 3.0], [5.0, 5.0], [0.0, 0.0]])
    assert torch.equal(module.doubt(distances), torch.tensor([0.0, 2.0, 6.0, 0.0]))
    expected = 0.001 + 0.999 * torch.tensor([1.0, -1.0, -5.0, 1.0]).sigmoid()
    assert torch.allclose(module.reliability_at(module.doubt(distances)), expected)


def test_the_number_of_samples_by_hand():
    # At the usual distance, the doubt is 0; a class with a quarter of the samples has n = 1/2.
    module = Reliability("gaussians", 2, 2, 0)
    module.support[:] = torch.tensor([1.0, 0.5]).log()
    module.evidence[:] = torch.tensor([0.9, 0.8])
    r = module(torch.zeros(2, 2), torch.tensor([0, 1]))
    assert torch.allclose(r, torch.tensor([0.9, 0.8]) * (0.001 + 0.999 / (1 + torch.tensor([1.0, 2.0]))))


def test_the_origin_of_skewed_features_is_their_lowest_value():
    # Exponential features, as behind a ReLU, after a standardisation; and symmetrical ones.
    draw = torch.Generator().manual_seed(0)
    uniform = torch.rand(900, 6, generator=draw)
    labels = torch.arange(900) % 3
    for features, one_sided in ((-uniform.log() * (1 + labels[:, None]) - 5, True), (uniform, False)):
        module = Reliability.fit(features, labels, features[:90], num_classes=3)
        assert torch.allclose(module.centre, features.amin(0) if one_sided else features.mean(0))


def test_inputs_that_excite_no_feature_are_not_near_each_other():
    # Two of eight features are high for each of three classes; noise excites all of them a little.
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % 3
    pattern = torch.eye(3).repeat_interleave(2, 1)[labels]
    known = torch.cat([pattern, torch.zeros(600, 2)], 1) * (0.5 + torch.rand(600, 1, generator=draw))
    known = known + 0.1 * torch.rand(600, 8, generator=draw)
    module = Reliability.fit(known[:500], labels[:500], known[500:], num_classes=3)
    noise = 0.3 + 0.1 * torch.rand(50, 8, generator=draw)
    assert module(noise, torch.zeros(50).long()).max() < module(known[500:], labels[500:]).quantile(0.1)


def test_the_distance_to_the_tenth_neighbour_and_to_the_nearest_mean():
    module, (known, _) = fitted(), blobs(5, 3)
    unit = nn.functional.normalize((known - module.centre) / module.scale) - module.middle
    found = module.distances(known)
    neighbours = torch.cdist(unit, module.bank).sort(1).values[:, 9]
    assert torch.allclose(found[:, 0], neighbours, atol=1e-4)
    means = torch.cdist(unit @ module.whitening, module.means).amin(1)
    assert torch.allclose(found[:, 1], means, atol=1e-3)
    assert torch.allclose(found[:, 2], ((known - module.centre) / module.scale).norm(dim=1).log(), atol=1e-5)


def test_the_distance_to_means_does_not_depend_on_how_it_is_computed():
    draw = torch.Generator().manual_seed(0)
    points, means = (20 * torch.randn(n, 128, generator=draw, dtype=torch.float64) for n in (50, 90))
    exact = torch.cdist(points, means).amin(1, keepdim=True)
    for count in (1, 50):  # one way for few pairs, another one for many
        found = _nearest_mean(points[:count].float(), means.float())
        torch.testing.assert_close(found.double(), exact[:count], rtol=1e-5, atol=0)


def test_weakening_is_widening_and_discounting():
    """The shorter way through dense tables agrees with the general one, for one sample and for many."""
    budget = Budget.from_sets([{0, 1}, {1, 2}, {0, 1, 2}, {2, 3, 4}], 6)
    draw = torch.Generator().manual_seed(0)
    mass = torch.rand(2000, len(budget) + 1, generator=draw).square()
    answer = RandomSet.from_mass(mass / mass.sum(1, keepdim=True), budget.with_universal_set())
    share, r = torch.rand(2000, generator=draw), torch.rand(2000, generator=draw)
    expected = answer.widen(share).discount(r)
    found = answer.weaken(share, r, 0.7)
    torch.testing.assert_close(found.mass, expected.mass, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.pignistic, expected.pignistic, rtol=0, atol=1e-6)
    assert torch.equal(found.labels, answer.labels)
    assert torch.equal(found.reliability, r)
    assert found.familiar_from == pytest.approx(0.7)
    for row in range(20):
        alone = answer[row : row + 1].weaken(share[row : row + 1], r[row : row + 1], 0.7)
        torch.testing.assert_close(alone.mass, expected.mass[row : row + 1], rtol=0, atol=1e-6)
        torch.testing.assert_close(alone.pignistic[0], expected.pignistic[row], rtol=0, atol=1e-6)


def test_the_bank_has_a_size():
    module = fitted(max_bytes=4 * 8 * 30)
    assert module.bank.shape == (30, 8)
    assert fitted("gaussians").bank.shape == (0, 8)


class TestFiles:
    @pytest.fixture
    def network(self):
        network = RandomSetNetwork(nn.Linear(8, 8), Budget.powerset(3)).eval()
        inputs, labels = blobs(200)
        network.fit_reliability((inputs, labels), blobs(60, 1))
        return network

    def test_saved_and_loaded(self, network, tmp_path):
        network.save(tmp_path)
        inputs, _ = blobs(20, 2)
        before = network.predict(inputs)
        after = load(tmp_path, backbone=nn.Linear(8, 8)).predict(inputs)
        assert before.is_discounted
        assert torch.equal(before.mass, after.mass)
        assert torch.equal(before.reliability, after.reliability)

    def test_a_state_of_an_earlier_version(self, network):
        added = ("evidence", "imprecision", "familiar_from")
        state = {name: value for name, value in network.state_dict().items() if not name.endswith(added)}
        fresh = RandomSetNetwork(nn.Linear(8, 8), Budget.powerset(3)).eval()
        fresh.load_state_dict(state)
        inputs, _ = blobs(20, 2)
        found = fresh.predict(inputs)
        assert found.familiar_from == 0.5
        expected = network.random_set(network(inputs) / network.reliability.sharpening)
        r = found.reliability
        torch.testing.assert_close(found.mass, expected.discount(r).mass)

    def test_a_state_dict_brings_its_reliability(self, network):
        fresh = RandomSetNetwork(nn.Linear(8, 8), Budget.powerset(3)).eval()
        plain = fresh.state_dict()
        fresh.load_state_dict(network.state_dict())
        inputs, _ = blobs(20, 2)
        assert torch.equal(fresh.predict(inputs).mass, network.predict(inputs).mass)
        fresh.load_state_dict(plain)
        assert fresh.reliability is None

    def test_a_random_set_keeps_it(self, network, tmp_path):
        inputs, _ = blobs(6, 2)
        answer = network.predict(50 * inputs)
        answer.save(tmp_path / "answer.safetensors")
        again = RandomSet.load(tmp_path / "answer.safetensors")
        assert torch.equal(again.reliability, answer.reliability)
        assert again.familiar_from == answer.familiar_from == float(network.reliability.familiar_from)
        assert torch.equal(answer[2:4].reliability, answer.reliability[2:4])
        assert "unlike the training data" in answer.explain(0)
        assert "reliability" in answer.to_frame()
        assert answer.mass[:, -1].min() > 0.9

    def test_switched_off(self, network):
        inputs, _ = blobs(6, 2)
        plain = network.predict(50 * inputs, discounted=False)
        assert not plain.is_discounted
        assert torch.equal(plain.reliability, torch.ones(6))
        assert torch.equal(plain.labels, network.predict(50 * inputs).labels)

    @pytest.mark.parametrize(
        "spec", [{"kind": "auto", "rows": 10**9}, {"kind": "x", "rows": 1}, [], {"kind": "auto"}]
    )
    def test_a_strange_description(self, spec):
        with pytest.raises(FileFormatError, match="unknown reliability"):
            reliability_from_spec(spec, 8, 3, 1000)


class TestErrors:
    def test_messages(self):
        features, labels = blobs(60)
        arguments = {"num_classes": 3}
        with pytest.raises(RandomSetError, match=r"too few validation samples.*got 5"):
            Reliability.fit(features, labels, features[:5], **arguments)
        with pytest.raises(RandomSetError, match="are equal"):
            Reliability.fit(torch.ones(60, 8), labels, features, **arguments)
        broken = features.clone()
        broken[3], broken[5, 2] = torch.nan, torch.inf
        wrong = r"training samples are not finite; got 2 of 60 samples with NaN or infinity; expected finite"
        with pytest.raises(RandomSetError, match=wrong + r".*Check these samples"):
            Reliability.fit(broken, labels, features, **arguments)
        with pytest.raises(RandomSetError, match=r"validation samples are not finite; got 2 of 60"):
            Reliability.fit(features, labels, broken, **arguments)
        with pytest.raises(RandomSetError, match=r"too few training samples to fit .*got 1; expected 2"):
            Reliability.fit(features[:1], labels[:1], features, **arguments)
        with pytest.raises(
            RandomSetError, match=r"max_bytes must be a positive number; got '16 MB'; expected the larg"
        ):
            Reliability.fit(features, labels, features, max_bytes="16 MB", **arguments)
        with pytest.raises(RandomSetError, match=r"cannot hold 10 neighbours; got max_bytes=100 for 8 feat"):
            Reliability.fit(features, labels, features, max_bytes=100, **arguments)
        assert len(Reliability.fit(features, labels, features, max_bytes=320, **arguments).bank) == 10
        with pytest.raises(ShapeError, match="wrong shape"):
            fitted()(features[:, :4], features)
        with pytest.raises(RandomSetError, match=r"unknown kind.*got far"):
            check_reliability("far")

    def test_a_class_without_samples(self):
        features, labels = blobs(60)
        module = Reliability.fit(features, labels, features, num_classes=4)
        assert module(features, labels).isfinite().all()
