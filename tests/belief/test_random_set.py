import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from randomset import Budget, RandomSet, measures
from randomset.belief.operators import BudgetOperators
from randomset.errors import BudgetError, InvalidBeliefError, RandomSetError, ShapeError
from tests.strategies import budgets, random_budget, random_mass, seeds

PETS = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
SECTION_2 = torch.tensor([0.5, 0.0, 0.1, 0.4])
QUESTIONS = [
    "mass", "belief", "plausibility", "commonality", "pignistic", "lower", "upper", "labels", "confidence",
    "credal_width", "entropy", "nonspecificity", "discord", "upper_entropy", "lower_entropy",
]  # fmt: skip


def test_from_logits_is_sigmoid_and_repair():
    budget = random_budget(6, 12, seed=4)
    logits = torch.randn(50, len(budget), generator=torch.Generator().manual_seed(0))
    for repair in ("clip", "projection"):
        one = RandomSet.from_logits(logits, budget, repair)
        two = RandomSet.from_belief(logits.sigmoid(), budget, repair)
        torch.testing.assert_close(one.mass, two.mass)
        torch.testing.assert_close(one.validity.excess, two.validity.excess)
    assert one.validity.summary["repaired"] > 0.9
    assert "of samples repaired" in repr(one.validity)


def test_infinite_logits_mean_certainty():
    inf = float("inf")
    sure = RandomSet.from_logits(torch.tensor([inf, -inf, -inf, inf]), PETS)
    assert sure.mass.tolist() == [1, 0, 0, 0, 0]


def test_half_precision_becomes_float32():
    logits = torch.randn(3, len(PETS)).half()
    assert RandomSet.from_logits(logits, PETS).mass.dtype == torch.float32
    assert RandomSet.from_logits(logits.double(), PETS).mass.dtype == torch.float64


def test_operators_in_place_of_a_budget():
    logits = torch.randn(3, len(PETS))
    assert torch.equal(
        RandomSet.from_logits(logits, BudgetOperators(PETS)).mass, RandomSet.from_logits(logits, PETS).mass
    )


@given(budgets(max_classes=5), seeds)
def test_concatenation_equals_batch(budget, seed):
    whole = RandomSet.from_mass(random_mass(budget, 7, seed=seed), budget)
    joined = RandomSet.concatenate([whole[:3], whole[3:4], whole[4:]])
    for name in QUESTIONS:
        torch.testing.assert_close(getattr(joined, name), getattr(whole, name))
    assert torch.equal(joined.validity.repaired, whole.validity.repaired)


@given(budgets(max_classes=5), seeds)
def test_samples_are_independent_of_the_batch(budget, seed):
    whole = RandomSet.from_mass(random_mass(budget, 2, 3, seed=seed), budget)
    for name in QUESTIONS:
        torch.testing.assert_close(getattr(whole[1][2], name), getattr(whole, name)[1, 2])


@given(budgets(max_classes=6), seeds)
def test_permuting_the_classes_commutes_with_every_property(budget, seed):
    n = budget.num_classes
    turn = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    turned = Budget.from_sets([turn[list(s)].tolist() for s in budget.sets], n)
    place = torch.tensor([turned.index(turn[list(s)].tolist()) for s in budget.sets])
    belief = torch.rand(3, len(budget), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moved = torch.zeros_like(belief).index_copy(-1, place, belief)
    one, two = RandomSet.from_belief(belief, budget), RandomSet.from_belief(moved, turned)
    sets = torch.tensor([two.budget.index(turn[list(s)].tolist()) for s in one.budget.sets])
    for name in ("mass", "belief", "plausibility", "commonality"):
        torch.testing.assert_close(getattr(two, name)[:, sets], getattr(one, name))
    for name in ("pignistic", "lower", "upper"):
        torch.testing.assert_close(getattr(two, name)[:, turn], getattr(one, name))
    for name in ("confidence", "entropy", "nonspecificity", "discord", "upper_entropy", "lower_entropy"):
        torch.testing.assert_close(getattr(two, name), getattr(one, name))
    torch.testing.assert_close(two.validity.negative, one.validity.negative)
    for rule in ("dominance", "maximality", "e-admissibility"):
        assert torch.equal(two.decide(rule)[:, turn], one.decide(rule))
    fused, again = one.combine(one, rule="yager"), two.combine(two, rule="yager")
    torch.testing.assert_close(again.pignistic[:, turn], fused.pignistic)
    fused, again = one.combine(one, rule="disjunctive"), two.combine(two, rule="disjunctive")
    torch.testing.assert_close(again.pignistic[:, turn], fused.pignistic)


@pytest.mark.parametrize(
    "index", [0, -1, slice(1, 4), [2, 0], torch.tensor([3, 3]), np.array([True, False, True, False, True])]
)
def test_indexing(index):
    whole = RandomSet.from_logits(torch.randn(5, len(PETS)), PETS)
    part = whole[index]
    assert torch.equal(part.mass, whole.mass[index])
    assert torch.equal(part.validity.negative, whole.validity.negative[index])


def test_empty_batches():
    empty = RandomSet.from_logits(torch.zeros(0, len(PETS)), PETS)
    assert len(empty[torch.zeros(0, dtype=torch.bool)]) == 0
    assert len(empty[[]]) == 0
    assert "0 samples" in empty._repr_html_()
    assert len(empty.to_frame(probabilities=True)) == 0
    assert empty.contains(torch.full((3,), 1 / 3)).shape == (0,)
    many = Budget.singletons(20)
    assert RandomSet.from_logits(torch.zeros(0, 20), many).contains(torch.full((20,), 0.05)).shape == (0,)


def test_samples_can_be_separated_and_concatenated():
    whole = RandomSet.from_logits(torch.randn(3, len(PETS)), PETS)
    again = RandomSet.concatenate(one for one in whole)
    assert torch.equal(again.mass, whole.mass)
    with pytest.raises(ShapeError, match=r"of different shapes; got \(\) and \(3,\)"):
        RandomSet.concatenate([whole, whole[0]])


def test_arrays_and_lists():
    logits = np.random.default_rng(0).normal(size=(2, len(PETS)))
    assert RandomSet.from_logits(logits, PETS).mass.dtype == torch.float64
    assert RandomSet.from_mass([0.5, 0.0, 0.1, 0.4], PETS).label_names == ["cat"]
    for build in (RandomSet.from_logits, RandomSet.from_belief, RandomSet.from_mass):
        with pytest.raises(ShapeError, match=r"must be numbers; got Budget .* a list of numbers"):
            build(PETS, logits)  # type: ignore[arg-type]


def test_rounding_errors_in_masses_are_corrected():
    answer = RandomSet.from_mass(torch.tensor([1.00005, -0.00005, 0.0, 0.0]), PETS)
    assert answer.mass.tolist() == [1, 0, 0, 0, 0]
    half = torch.randn(50, len(PETS)).bfloat16().softmax(-1)
    assert RandomSet.from_mass(half, PETS).mass.sum(-1).tolist() == pytest.approx([1] * 50)
    with pytest.raises(InvalidBeliefError, match=r"sum to one; got 1\.0009"):
        RandomSet.from_mass(torch.tensor([1.0009, 0.0, 0.0, 0.0], dtype=torch.float64), PETS)


def test_fusion_keeps_the_worst_validity():
    broken = RandomSet.from_belief(torch.tensor([[0.5, 0.2, 0.1, 0.6]]), PETS)
    sound = RandomSet.from_mass(torch.tensor([[0.5, 0.0, 0.1, 0.4]]), PETS)
    assert broken.combine(sound).validity.repaired.tolist() == [True]
    many = sound[0].discount(torch.tensor([0.5, 0.9]))
    assert many.validity.repaired.shape == (2,)
    with pytest.raises(ShapeError, match=r"batch shapes do not match; got \(3,\) and \(2,\)"):
        sound[[0, 0, 0]].combine(sound[[0, 0]])
    with pytest.raises(RandomSetError, match="only random sets can be combined; got list"):
        sound.combine([broken])  # type: ignore[arg-type]


def test_indices_do_not_reach_the_set_dimension(answer):
    for index in ((0, 1), (slice(None), 2), 2, [5]):
        with pytest.raises(IndexError):
            answer[index]
    assert len(list(answer)) == 2
    with pytest.raises(TypeError, match="no length"):
        len(answer[0])


def test_immutable(answer):
    with pytest.raises(AttributeError, match="immutable"):
        answer.mass = SECTION_2
    with pytest.raises(AttributeError, match="immutable"):
        answer.note = "hello"
    with pytest.raises(AttributeError, match="immutable"):
        del answer.mass


def test_moving_to_the_same_device_keeps_what_was_computed(answer):
    pignistic = answer.pignistic
    assert answer.to("cpu").pignistic is pignistic
    assert answer.to("cpu").budget == answer.budget


def test_weakening_keeps_the_labels(answer):
    weaker = answer.weaken(torch.full(answer.shape, 0.3), torch.full(answer.shape, 1e-3), 0.5)
    assert torch.equal(weaker.labels, answer.labels)
    assert torch.equal(weaker.pignistic.gather(-1, weaker.labels[..., None])[..., 0], weaker.confidence)


def test_to_and_numpy(answer):
    wide = answer.to(torch.float64)
    assert wide.pignistic.dtype == torch.float64
    assert wide.budget == answer.budget
    arrays = answer.numpy()
    assert arrays["labels"].tolist() == [0, 2]
    assert isinstance(arrays["pignistic"], np.ndarray)
    with pytest.raises(RandomSetError, match=r"floating dtype; got torch\.int64"):
        answer.to(torch.long)


def test_other_masses_keep_the_validity():
    budget = Budget.from_sets([{0, 1}], 3)
    broken = RandomSet.from_belief(torch.tensor([[0.5, 0.2, 0.1, 0.6], [0.2, 0.2, 0.2, 0.5]]), budget)
    for changed in (broken.discount(0.5), broken.with_mass(broken.mass.flip(-1)), broken.to("cpu")):
        assert changed.validity.repaired.tolist() == [True, False]
    assert broken[0].discount(torch.tensor([0.5, 0.9])).validity.repaired.tolist() == [True, True]
    assert broken.discount(0.5).discount(torch.tensor([1.0, 0.5])).reliability.tolist() == [0.5, 0.25]


def test_fusion_and_discounting(answer):
    certain = answer[1].discount(0.5)
    assert certain.mass.tolist() == pytest.approx([0, 0, 0.5, 0, 0.5])
    fused = answer[0].combine(certain)
    assert fused.pignistic.sum().item() == pytest.approx(1)
    assert fused.upper[2] > answer[0].upper[2]
    cautious = answer[0].combine(answer[1], rule="yager")
    assert cautious.mass[-1].item() == pytest.approx(0.9)
    mean = answer[0].combine(certain, rule="mean")
    assert mean.mass.tolist() == pytest.approx(((answer[0].mass + certain.mass) / 2).tolist())
    assert mean.reliability.item() == pytest.approx(0.75)
    assert not answer[0].combine(answer[1], rule="mean").is_discounted
    with pytest.raises(RandomSetError, match="unknown rule; got sum"):
        answer.combine(answer, rule="sum")
    with pytest.raises(RandomSetError, match="unknown rule; got best"):
        answer.decide("best")


@given(st.lists(st.floats(width=32), min_size=4, max_size=4))
def test_arbitrary_numbers_give_a_result_or_a_clear_error(values):
    raw = torch.tensor(values)
    for build in (RandomSet.from_belief, RandomSet.from_logits, RandomSet.from_mass):
        try:
            answer = build(raw, PETS)
        except InvalidBeliefError:
            continue
        assert answer.mass.min() >= -1e-3
        assert answer.mass.sum().item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("build", "values", "message"),
    [
        (RandomSet.from_belief, [0.1, float("nan"), 0.1, 0.1], "outputs are not finite; got nan"),
        (RandomSet.from_belief, [0.1, 3.5, 0.1, 0.1], "out of range; got 3.5.*use RandomSet.from_logits"),
        (RandomSet.from_logits, [0.1, float("nan"), 0.1, 0.1], "not finite; got nan"),
        (RandomSet.from_mass, [0.1, 0.1, 0.1, 0.1], "the masses do not sum to one; got 0.4"),
        (RandomSet.from_mass, [1.1, -0.1, 0.0, 0.0], "the masses are negative; got -0.1"),
        (RandomSet.from_mass, [1.0, float("inf"), 0.0, 0.0], "the masses are not finite; got inf"),
    ],
)
def test_impossible_values_are_named(build, values, message):
    with pytest.raises(InvalidBeliefError, match=message):
        build(torch.tensor(values), PETS)


def test_batches_that_do_not_match(answer):
    with pytest.raises(BudgetError, match="over different budgets"):
        RandomSet.concatenate([answer, RandomSet.from_mass(torch.tensor([[1.0, 0.0]]), Budget.singletons(2))])
    with pytest.raises(RandomSetError, match="nothing to concatenate"):
        RandomSet.concatenate([])
    with pytest.raises(ShapeError, match=r"got \(2, 3\); expected \(…, 4\)"):
        RandomSet.from_logits(torch.zeros(2, 3), PETS)


def test_gradients_reach_the_logits():
    logits = torch.randn(4, len(PETS), dtype=torch.float64, requires_grad=True)

    def entropies(x):
        return RandomSet.from_logits(x, PETS).entropy

    assert torch.autograd.gradcheck(entropies, logits)
    assert measures.entropy(RandomSet.from_logits(logits, PETS).pignistic).requires_grad


@given(budgets(), seeds)
def test_wider_intervals_with_the_same_probabilities(budget, seed):
    family = budget.with_universal_set()
    answer = RandomSet.from_mass(random_mass(family, 3, seed=seed), family)
    wide = answer.widen(0.4)
    torch.testing.assert_close(wide.pignistic, answer.pignistic)
    assert wide.mass.amin() >= 0
    assert wide.mass.sum(-1).tolist() == pytest.approx([1, 1, 1])
    assert torch.equal(answer.widen(0.0).mass, answer.mass)
    # Additive beliefs have intervals of no width, any other has wider ones.
    others = len(family) - family.num_classes
    additive = RandomSet.from_mass(torch.nn.functional.pad(answer.pignistic, (0, others)), family)
    assert (additive.widen(0.4).credal_width >= additive.credal_width).all()


def test_widening_and_discounting_commute(answer):
    for share, r in ((0.3, 0.9), (1.0, 0.2)):
        one, other = answer.widen(share).discount(r), answer.discount(r).widen(share)
        torch.testing.assert_close(one.mass, other.mass)
        assert torch.equal(one.reliability, other.reliability)
