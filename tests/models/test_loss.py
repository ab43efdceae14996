"""The losses of random-set networks: literal formulas, kinds of labels, weights."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from randomset import Budget, NormalisedMassLoss, RandomSet, RandomSetHead, RandomSetLoss
from randomset.belief.transforms import belief_from_classes, belief_from_mass, mass_from_belief
from randomset.errors import RandomSetError, ShapeError
from tests import oracles
from tests.strategies import budgets, random_budget, random_mass, seeds

ANIMALS = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])


def draw(budget, count=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, len(budget), generator=generator, dtype=dtype)
    return logits, torch.randint(budget.num_classes, (count,), generator=generator)


def literal(logits, labels, budget, alpha, beta):
    """Equations 5 to 7, one number after another."""
    sets = [frozenset(s) for s in budget.sets]
    matrix = torch.tensor(oracles.subset_matrix(budget))
    bce = negative = total = 0.0
    for row, label in zip(logits, labels.tolist(), strict=True):
        beliefs = [1 / (1 + math.exp(-z)) for z in row.tolist()]
        masses = torch.linalg.solve(matrix, torch.tensor(beliefs, dtype=torch.float64)).tolist()
        for focal, belief in zip(sets, beliefs, strict=True):
            bce -= math.log(belief if label in focal else 1 - belief) / len(sets) / len(logits)
        negative += sum(max(0.0, -m) for m in masses) / len(logits)
        total += sum(masses) / len(logits)
    return bce, negative, max(0.0, total - 1), bce + alpha * negative + beta * max(0.0, total - 1)


class TestRandomSetLoss:
    def test_by_hand(self):
        # Beliefs 0.8, 0.3, 0.2 in the singletons and 0.9 in {cat, dog}: masses 0.8, 0.3, 0.2, −0.2; sum 1.1.
        beliefs = torch.tensor([[0.8, 0.3, 0.2, 0.9]], dtype=torch.float64)
        loss = RandomSetLoss(ANIMALS, alpha=0.5, beta=2.0)
        value = loss(beliefs.logit(), torch.tensor([0]))
        bce = -(math.log(0.8) + math.log(0.7) + math.log(0.8) + math.log(0.9)) / 4
        assert loss.terms["bce"].item() == pytest.approx(bce)
        assert loss.terms["M_r"].item() == pytest.approx(0.2)
        assert loss.terms["M_s"].item() == pytest.approx(0.1)
        assert value.item() == pytest.approx(bce + 0.5 * 0.2 + 2 * 0.1)

    def test_the_hinge_is_on_the_mean_of_the_batch(self):
        # Sums of masses 1.3 and 0.5: no sample's own hinge, but that of their mean, 0.9, is closed.
        logits = torch.tensor([[0.9, 0.2, 0.2], [0.2, 0.2, 0.1]], dtype=torch.float64).logit()
        loss = RandomSetLoss(Budget.singletons(3), alpha=0.0, beta=1.0)
        loss(logits, torch.tensor([0, 1]))
        assert loss.terms["M_s"] == 0
        loss(logits[:1], torch.tensor([0]))
        assert loss.terms["M_s"].item() == pytest.approx(0.3)

    @given(budgets(), seeds)
    def test_the_literal_definition(self, budget, seed):
        logits, labels = draw(budget, seed=seed)
        loss = RandomSetLoss(budget, 0.3, 0.7)
        bce, m_r, m_s, value = literal(logits, labels, budget, 0.3, 0.7)
        assert loss(logits, labels).item() == pytest.approx(value)
        found = [loss.terms[name].item() for name in ("bce", "M_r", "M_s")]
        assert found == pytest.approx([bce, m_r, m_s], abs=1e-9)

    def test_defaults_are_the_papers(self):
        assert (RandomSetLoss(ANIMALS).alpha, RandomSetLoss(ANIMALS).beta) == (1e-3, 1e-3)

    @pytest.mark.parametrize("budget", [ANIMALS, random_budget(6, 9), Budget.powerset(4)], ids=repr)
    def test_gradients(self, budget):
        logits, labels = draw(budget, 4)
        loss = RandomSetLoss(budget, 0.3, 0.7)
        assert loss.terms == {}
        assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits.requires_grad_())

    def test_singletons_are_multi_label_classification(self):
        budget = Budget.singletons(5)
        logits, labels = draw(budget)
        one_hot = torch.nn.functional.one_hot(labels, 5).double()
        loss = RandomSetLoss(budget, 0, 0)(logits, labels)
        assert loss.item() == pytest.approx(binary_cross_entropy_with_logits(logits, one_hot).item())

    def test_confident_samples_keep_a_gradient(self):
        """Clipped probabilities would have none (PAPER-NOTES: from logits)."""
        logits = torch.tensor([[-40.0, 40.0, -40.0, 40.0]], requires_grad=True)
        RandomSetLoss(ANIMALS, 0, 0)(logits, torch.tensor([0])).backward()
        assert logits.grad is not None
        assert logits.grad[0, :2].tolist() == pytest.approx([-0.25, 0.25])

    def test_half_precision_is_computed_in_full(self):
        logits, labels = draw(ANIMALS, dtype=torch.float32)
        whole = RandomSetLoss(ANIMALS)(logits.bfloat16().float(), labels)
        assert RandomSetLoss(ANIMALS)(logits.bfloat16(), labels).item() == pytest.approx(whole.item())
        assert RandomSetLoss(ANIMALS)(logits.bfloat16(), labels).dtype == torch.float32

    def test_terms_carry_no_gradient(self):
        logits, labels = draw(ANIMALS)
        loss = RandomSetLoss(ANIMALS)
        loss(logits.requires_grad_(), labels)
        assert not any(term.requires_grad for term in loss.terms.values())


class TestLikelihood:
    def test_by_hand(self):
        """Beliefs 0.5, 0.5, 0.5 and 0.5: {cat, dog} has mass −0.5, clipped; the others 1.5, so BetP = 1/3."""
        loss = RandomSetLoss(ANIMALS, gamma=2.0)
        value = loss(torch.zeros(2, 4), torch.tensor([0, 2]))
        assert loss.terms["nll"].item() == pytest.approx(math.log(3))
        without = RandomSetLoss(ANIMALS)(torch.zeros(2, 4), torch.tensor([0, 2])).item()
        assert value.item() == pytest.approx(without + 2 * math.log(3))
        assert loss.terms["loss"].item() == pytest.approx(value.item())

    @given(budgets(min_classes=2), seeds)
    def test_it_is_that_of_the_prediction(self, budget, seed):
        logits, labels = draw(budget, seed=seed)
        betp = RandomSet.from_logits(logits, budget).pignistic
        loss = RandomSetLoss(budget, gamma=1.0)
        loss(logits, labels)
        likelihood = betp.gather(1, labels[:, None]).clamp_min(1e-6)
        assert loss.terms["nll"].item() == pytest.approx(-likelihood.log().mean().item(), abs=1e-9)
        mask = torch.rand(len(logits), budget.num_classes) > 0.5
        mask[torch.arange(len(labels)), labels] = True
        loss(logits, mask)
        likelihood = (betp * mask).sum(1).clamp_min(1e-6)
        assert loss.terms["nll"].item() == pytest.approx(-likelihood.log().mean().item(), abs=1e-9)

    def test_probabilities_and_masses(self):
        logits = torch.randn(1, 4, dtype=torch.float64)
        betp = RandomSet.from_logits(logits, ANIMALS).pignistic[0]
        loss = RandomSetLoss(ANIMALS, gamma=1.0)
        loss(logits, torch.tensor([[0.25, 0.0, 0.75]]))
        expected = -(0.25 * betp[0].log() + 0.75 * betp[2].log())
        assert loss.terms["nll"].item() == pytest.approx(expected.item())
        loss(logits, torch.tensor([[0.0, 0.0, 0.25, 0.75]]))  # 0.75 on {cat, dog}
        expected = -(0.25 * betp[2].log() + 0.75 * (betp[0] + betp[1]).log())
        assert loss.terms["nll"].item() == pytest.approx(expected.item())

    def test_samples_without_a_label_or_weight_do_not_count(self):
        logits = torch.randn(3, 4)
        loss, alone = (RandomSetLoss(ANIMALS, gamma=1.0) for _ in range(2))
        alone(logits[:1], torch.tensor([1]))
        loss(logits, torch.tensor([1, 0, -100]), torch.tensor([2.0, 0.0, 1.0]))
        assert loss.terms["nll"].item() == pytest.approx(alone.terms["nll"].item())

    def test_a_negative_weight_is_refused(self):
        with pytest.raises(RandomSetError, match="gamma must be non-negative; got -1"):
            RandomSetLoss(ANIMALS, gamma=-1)


class TestLabels:
    def test_a_set_of_one_is_a_class(self):
        logits, labels = draw(ANIMALS)
        mask = torch.nn.functional.one_hot(labels, 3).bool()
        expected = RandomSetLoss(ANIMALS)(logits, labels).item()
        assert RandomSetLoss(ANIMALS)(logits, mask).item() == pytest.approx(expected)
        assert RandomSetLoss(ANIMALS)(logits, mask.double()).item() == pytest.approx(expected)
        names = [{ANIMALS.classes[c]} for c in labels]
        assert RandomSetLoss(ANIMALS)(logits, names).item() == pytest.approx(expected)

    def test_masses_over_sets(self):
        mass = random_mass(ANIMALS, 5)
        logits, _ = draw(ANIMALS)
        expected = binary_cross_entropy_with_logits(logits, belief_from_mass(mass, ANIMALS))
        assert RandomSetLoss(ANIMALS, 0, 0)(logits, mass).item() == pytest.approx(expected.item())
        with_theta = torch.cat((mass / 2, mass.new_full((5, 1), 0.5)), 1)
        expected = binary_cross_entropy_with_logits(logits, belief_from_mass(mass / 2, ANIMALS))
        assert RandomSetLoss(ANIMALS, 0, 0)(logits, with_theta).item() == pytest.approx(expected.item())

    def test_ignored_samples_count_nothing(self):
        logits, labels = draw(ANIMALS, 6)
        loss = RandomSetLoss(ANIMALS, 0.3, 0.7)
        part = loss(logits[:4], labels[:4])
        some = labels.clone()
        some[4:] = -100
        assert loss(logits, some).item() == pytest.approx(part.item())
        assert RandomSetLoss(ANIMALS, ignore_index=7)(logits, labels.where(labels == labels, 7)) >= 0

    def test_a_batch_of_ignored_samples_is_zero_with_zero_gradient(self):
        logits, labels = draw(ANIMALS)
        value = RandomSetLoss(ANIMALS)(logits.requires_grad_(), torch.full_like(labels, -100))
        value.backward()
        assert value == 0
        assert logits.grad is not None
        assert not logits.grad.any()

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (torch.tensor([0, 1]), "incompatible shapes"),
            (torch.tensor([0, 1, 2, 3, 0]), "not a class index"),
            (torch.tensor([0, 1, -1, 2, 0]), "not a class index"),
            (torch.zeros(5, 3, dtype=torch.bool), "label is empty"),
            (torch.zeros(5), "must be integers"),
            (torch.ones(5, 3, dtype=torch.long), r"\.bool\(\)"),
            (torch.full((5, 3), 0.5), "sum to one"),
            (torch.full((5, 7), 0.5), "wrong shape"),
            ([{"cat"}, {"cow"}, {"cat"}, {"cat"}, {"cat"}], "cow"),
        ],
    )
    def test_errors(self, labels, message):
        logits, _ = draw(ANIMALS)
        with pytest.raises(RandomSetError, match=message):
            RandomSetLoss(ANIMALS)(logits, labels)

    def test_logits_of_another_budget(self):
        with pytest.raises(ShapeError, match=r"\(5, 3\).*\(batch, 4\)"):
            RandomSetLoss(ANIMALS)(torch.zeros(5, 3), torch.zeros(5, dtype=torch.long))


def targets_of(logits, mask, budget, kind=RandomSetLoss):
    """The targets in the gradient of the cross-entropy, (sigmoid(z) − target) / |O|."""
    logits = logits.clone().requires_grad_()
    kind(budget)._entropy(logits, kind(budget)._target(logits, mask, None)[0]).sum().backward()
    return logits.detach().sigmoid() - logits.grad * len(budget)


class TestLabelSets:
    # Masses 0.2, 0.1, 0.3 and 0.3, and 0.1 on Θ: BetP = 0.2 + 0.15 + 1/30, 0.1 + 0.15 + 1/30, 0.3 + 1/30.
    beliefs = torch.tensor([[0.2, 0.1, 0.3, 0.6]], dtype=torch.float64)

    @pytest.mark.parametrize(
        ("label", "expected"),
        [
            ({"cat", "dog"}, [23 / 40, 17 / 40, 0, 1]),
            ({"cat", "car"}, [23 / 43, 0, 20 / 43, 23 / 43]),
            ({"cat", "dog", "car"}, [23 / 60, 17 / 60, 20 / 60, 40 / 60]),
            ({"dog"}, [0, 1, 0, 1]),
        ],
    )
    def test_by_hand(self, label, expected):
        logits, mask = self.beliefs.logit(), ANIMALS.mask_from_sets([label])
        assert targets_of(logits, mask, ANIMALS)[0].tolist() == pytest.approx(expected)
        pairs = zip(expected, self.beliefs[0].tolist(), strict=True)
        bce = -sum(t * math.log(b) + (1 - t) * math.log(1 - b) for t, b in pairs) / 4
        for labels in (mask, [label]):
            assert RandomSetLoss(ANIMALS, 0, 0)(logits, labels).item() == pytest.approx(bce)
        norm = NormalisedMassLoss(ANIMALS)
        norm(logits, mask)
        assert norm.terms["bce"].item() == pytest.approx(bce)

    def test_the_literal_reading(self):
        mask = ANIMALS.mask_from_sets([{"cat", "dog"}])
        found = RandomSetLoss(ANIMALS, 0, 0, disambiguate=False)(self.beliefs.logit(), mask)
        bce = -(math.log(0.8) + math.log(0.9) + math.log(0.7) + math.log(0.6)) / 4
        assert found.item() == pytest.approx(bce)
        norm = NormalisedMassLoss(ANIMALS, disambiguate=False)
        norm(self.beliefs.logit(), mask)
        assert norm.terms["bce"].item() == pytest.approx(bce)

    @given(budgets(), seeds)
    def test_what_is_known_and_what_is_not(self, budget, seed):
        logits, labels = draw(budget, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        mask = torch.rand(len(labels), budget.num_classes, generator=generator) < 0.4
        mask |= torch.nn.functional.one_hot(labels, budget.num_classes).bool()
        betp = RandomSet.from_logits(logits, budget).pignistic
        found = targets_of(logits, mask, budget)
        for row, inside in enumerate(mask):
            label = set(inside.nonzero()[:, 0].tolist())
            for column, focal in enumerate(map(set, budget.sets)):
                share = betp[row, sorted(label & focal)].sum() / betp[row, sorted(label)].sum()
                if label <= focal or not label & focal:
                    assert share.item() == pytest.approx(float(label <= focal), abs=1e-9)
                assert found[row, column].item() == pytest.approx(share.item(), abs=1e-6)

    @pytest.mark.parametrize("kind", [RandomSetLoss, NormalisedMassLoss])
    def test_precise_labels_have_exactly_the_loss_of_classes(self, kind):
        budget = random_budget(6, 9)
        logits, labels = draw(budget, 50, dtype=torch.float32)
        mask = torch.nn.functional.one_hot(labels, 6).bool()
        values = []
        for given_labels in (labels, mask):
            z = logits.clone().requires_grad_()
            value = kind(budget)(z, given_labels)
            value.backward()
            values.append((value.detach(), z.grad))
        assert torch.equal(values[0][0], values[1][0])
        assert torch.equal(values[0][1], values[1][1])

    def test_samples_do_not_depend_on_each_other(self):
        logits, _ = draw(ANIMALS, 2)
        mask = torch.tensor([[True, True, False], [True, False, False]])
        loss = RandomSetLoss(ANIMALS, 0, 0)
        parts = [loss(logits[row : row + 1], mask[row : row + 1]).item() for row in range(2)]
        assert loss(logits, mask).item() == pytest.approx(sum(parts) / 2)
        weighted = loss(logits, mask, torch.tensor([3.0, 1.0]))
        assert weighted.item() == pytest.approx((3 * parts[0] + parts[1]) / 4)

    def test_a_label_without_probability_is_shared_equally(self):
        """All mass is on car, so that BetP({cat, dog}) = 0 / 0 says nothing."""
        logits = torch.tensor([[-1e4, -1e4, 1e4, -1e4]])
        mask = ANIMALS.mask_from_sets([{"cat", "dog"}])
        assert targets_of(logits, mask, ANIMALS)[0].tolist() == pytest.approx([0.5, 0.5, 0, 1])
        assert RandomSetLoss(ANIMALS)(logits, mask).isfinite()


class TestWeights:
    def test_a_weight_of_two_is_a_sample_twice(self):
        logits, labels = draw(ANIMALS, 3)
        loss = RandomSetLoss(ANIMALS, 0.3, 0.7)
        weighted = loss(logits, labels, torch.tensor([2.0, 1.0, 0.0]))
        repeated = loss(logits[[0, 0, 1]], labels[[0, 0, 1]])
        assert weighted.item() == pytest.approx(repeated.item())

    def test_class_weights_weigh_samples(self):
        logits, labels = draw(ANIMALS, 8)
        by_class = torch.tensor([3.0, 1.0, 0.5])
        found = RandomSetLoss(ANIMALS, class_weights=by_class)(logits, labels)
        assert found.item() == pytest.approx(RandomSetLoss(ANIMALS)(logits, labels, by_class[labels]).item())

    def test_a_set_weighs_as_the_mean_of_its_classes(self):
        logits, _ = draw(ANIMALS, 2)
        mask = torch.tensor([[True, True, False], [False, False, True]])
        found = RandomSetLoss(ANIMALS, class_weights=[3, 1, 5])(logits, mask)
        expected = RandomSetLoss(ANIMALS)(logits, mask, torch.tensor([2.0, 5.0]))
        assert found.item() == pytest.approx(expected.item())
        literal = RandomSetLoss(ANIMALS, disambiguate=False)
        expected = literal(logits, mask, torch.tensor([2.0, 5.0]))
        masses = torch.tensor([[0.0, 0, 0, 1], [0, 0, 1, 0]], dtype=torch.float64)
        found = RandomSetLoss(ANIMALS, class_weights=[3, 1, 5])(logits, masses)
        assert found.item() == pytest.approx(expected.item())

    def test_set_weights_weigh_the_terms_of_the_entropy(self):
        logits, labels = draw(ANIMALS, 4)
        each = binary_cross_entropy_with_logits(
            logits, belief_from_classes(labels, ANIMALS, torch.float64), reduction="none"
        )
        loss = RandomSetLoss(ANIMALS, 0, 0, set_weights=[1, 1, 1, 5])
        expected = (each @ torch.tensor([1, 1, 1, 5.0]).double() / 8).mean()
        assert loss(logits, labels).item() == pytest.approx(expected.item())

    @pytest.mark.parametrize("weights", [[1, 2], [1, -1, 1], [0, 0, 0], [1, math.nan, 1]])
    def test_bad_class_weights(self, weights):
        with pytest.raises(ShapeError, match="3 non-negative numbers"):
            RandomSetLoss(ANIMALS, class_weights=weights)

    def test_bad_sample_weights(self):
        logits, labels = draw(ANIMALS, 3)
        with pytest.raises(
            ShapeError, match=r"sample weights have the wrong shape; got \(2,\); expected \(3,\)"
        ):
            RandomSetLoss(ANIMALS)(logits, labels, torch.ones(2))
        with pytest.raises(RandomSetError, match="negative"):
            RandomSetLoss(ANIMALS)(logits, labels, torch.tensor([1.0, -1.0, 1.0]))

    def test_negative_alpha(self):
        with pytest.raises(RandomSetError, match="alpha"):
            RandomSetLoss(ANIMALS, alpha=-1)


class TestNormalisedMassLoss:
    @given(budgets(), seeds, st.sampled_from([1.0, 5.0]))
    def test_the_literal_definition(self, budget, seed, scale):
        logits, labels = draw(budget, seed=seed)
        mass = mass_from_belief(logits.sigmoid(), budget)
        expected = 0.0
        for row, label in zip(mass.tolist(), labels.tolist(), strict=True):
            weights = [math.exp(scale * m) for m in row]
            masses = {frozenset(s): w / sum(weights) for s, w in zip(budget.sets, weights, strict=True)}
            for focal in masses:
                belief = oracles.belief(masses, focal)
                hit = belief if label in focal else 1 - belief
                expected -= math.log(min(max(hit, 1e-15), 1)) / len(masses) / len(logits)
        loss = NormalisedMassLoss(budget, scale)
        plain = RandomSetLoss(budget, 0, 0)(logits, labels).item()
        assert loss(logits, labels).item() == pytest.approx(plain + expected, abs=1e-6)

    def test_masses_are_valid_by_construction(self):
        budget = random_budget(5, 8)
        logits, _ = draw(budget, 50)
        masses = NormalisedMassLoss(budget, 3.0).masses(logits)
        assert (masses >= 0).all()
        assert masses.sum(1).tolist() == pytest.approx([1.0] * 50)

    def test_gradients(self):
        budget = random_budget(5, 6, max_size=4)
        logits, labels = draw(budget, 4)
        loss = NormalisedMassLoss(budget)
        assert torch.autograd.gradcheck(lambda z: loss(z, labels), logits.requires_grad_())

    def test_bad_scale(self):
        with pytest.raises(RandomSetError, match="scale"):
            NormalisedMassLoss(ANIMALS, 0.0)


def train(network, loss, x, labels):
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(300):
        optimiser.zero_grad()
        loss(network(x), labels).backward()
        optimiser.step()


@pytest.mark.slow
def test_classes_are_learned_from_pairs_alone():
    """Every label contains a second class, at random: the class that all of them share is the right one."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (600,), generator=generator)
    x = torch.randn(600, 2, generator=generator) + 5 * torch.stack((labels % 2, labels // 2), 1)
    mask = torch.nn.functional.one_hot(labels, 4).bool()
    second = (labels + torch.randint(1, 4, (600,), generator=generator)) % 4
    mask[torch.arange(600), second] = True
    budget = Budget.from_sets([{0, 1}, {2, 3}], 4)
    for kind in (RandomSetLoss, NormalisedMassLoss):
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), RandomSetHead(16, budget))
        train(network, kind(budget), x[:400], mask[:400])
        with torch.no_grad():
            answer = RandomSet.from_logits(network(x[400:]), budget)
        assert (answer.labels == labels[400:]).float().mean() > 0.9, kind


@pytest.mark.slow
def test_two_classes_that_are_never_distinguished():
    """Labels say "cat or dog" or "car", and nothing ever separates cat from dog: the set must be learned."""
    generator = torch.Generator().manual_seed(0)
    car = torch.rand(400, generator=generator) < 0.5
    x = torch.randn(400, 2, generator=generator) + 4 * car[:, None]
    mask = torch.stack((~car, ~car, car), 1)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    train(network, RandomSetLoss(ANIMALS, disambiguate=False), x, mask)
    with torch.no_grad():
        answer = RandomSet.from_logits(network(x), ANIMALS)
    pair = answer.budget.index({"cat", "dog"})
    assert answer.mass[~car, pair].mean() > 0.9
    assert answer.mass[car, answer.budget.index({"car"})].mean() > 0.9
    assert answer.credal_width[~car].mean() > 0.9  # either of the two, anything between
    assert answer.credal_width[car].mean() < 0.1
    assert (answer.mass.argmax(1) == torch.where(car, 2, pair)).float().mean() > 0.98


class TestAuxiliary:
    BUDGET = Budget.from_sets([(0, 1)], 3)

    def test_the_loss_of_a_pair(self):
        loss, labels = RandomSetLoss(self.BUDGET), torch.tensor([0, 2])
        main, second = torch.randn(2, 4), torch.randn(2, 4)
        expected = loss(main, labels) + 0.4 * loss(second, labels)
        assert loss((main, second), labels).item() == pytest.approx(expected.item())
        assert loss.terms["loss"].item() == pytest.approx(loss(main, labels).item())
