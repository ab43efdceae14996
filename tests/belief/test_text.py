"""Text, tables and HTML."""

import sys

import pytest
import torch

from randomset import Budget, RandomSet
from randomset.belief.text import FAMILIAR, familiarity
from randomset.errors import MissingPackageError, ShapeError

PETS = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
SECTION_2 = torch.tensor([0.5, 0.0, 0.1, 0.4])


def test_explanation(answer):
    assert answer.explain(0) == (
        "0.50 on {cat}, 0.40 on {cat, dog}, 0.10 on {car}; predicted cat, probability in [0.50, 0.90]"
    )
    assert answer.explain(1) == "1.00 on {car}; predicted car, probability in [1.00, 1.00]"
    unsure = RandomSet.from_belief(torch.tensor([0.2, 0.1, 0.0, 0.3]), PETS)
    assert unsure.explain(top=1) == "0.70 on Θ (all classes); predicted cat, probability in [0.20, 0.90]"
    thin = RandomSet.from_mass(torch.full((1023,), 1 / 1023), Budget.powerset(10))
    assert thin.explain().startswith("1e-03 on {0}; predicted")
    with pytest.raises(ShapeError, match=r"got \(2,\) samples. Pass its index"):
        answer.explain()


class TestDiscounted:
    """Predictions that carry a reliability."""

    @pytest.fixture
    def discounted(self, answer):
        return answer.discount(torch.tensor([0.12, 0.96]))

    def test_the_explanation_says_why_the_mass_is_on_the_universal_set(self, discounted):
        assert discounted.explain(0) == (
            "0.88 on Θ (all classes): unlike the training data; 0.06 on {cat}, 0.05 on {cat, dog}; "
            "predicted cat, probability in [0.06, 0.99]; reliability 0.12, below 0.50"
        )
        assert discounted.explain(0, top=1).startswith(
            "0.88 on Θ (all classes): unlike the training data; pred"
        )
        assert discounted.explain(1) == (
            "0.96 on {car}, 0.04 on Θ (all classes); predicted car, probability in [0.96, 1.00]; "
            "reliability 0.96"
        )

    def test_the_limit_is_half(self, answer):
        assert "unlike" not in answer[1].discount(FAMILIAR).explain()
        assert "unlike" in answer[1].discount(FAMILIAR - 1e-3).explain()
        assert familiarity(FAMILIAR) == "familiar"

    def test_the_limit_may_be_fitted(self, answer):
        near = answer.discount(torch.tensor([0.98, 0.993]), familiar_from=0.99)
        assert near.familiar.tolist() == [False, True] == near.to_frame()["familiar"].tolist()
        assert near.explain(0).endswith("; unlike the training data: reliability 0.98, below 0.99")
        assert near.explain(1).endswith("; reliability 0.99")
        assert near[:1].to(torch.float64).familiar_from == RandomSet.concatenate([near]).familiar_from == 0.99

    def test_tables_and_representations(self, answer, discounted):
        assert discounted.to_frame()["reliability"].tolist() == pytest.approx([0.12, 0.96])
        assert repr(discounted).endswith("mean reliability 0.540)")
        assert "unlike the training data: reliability 0.12, below 0.50" in discounted._repr_html_()
        assert "familiar: reliability 0.96" in discounted._repr_html_()
        assert "reliability" not in answer.to_frame()
        assert "reliability" not in repr(answer) + answer._repr_html_()


def test_frame(answer):
    frame = answer.to_frame(probabilities=True)
    assert list(frame["label"]) == ["cat", "car"]
    assert frame["top_set"].tolist() == ["{cat}", "{car}"]
    assert frame["upper"].tolist() == pytest.approx([0.9, 1])
    assert frame["p(dog)"].tolist() == pytest.approx([0.2, 0])
    assert len(answer[0].to_frame()) == 1
    assert "p(dog)" not in answer.to_frame()


def test_missing_pandas(answer, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'randomset\[frames\]'"):
        answer.to_frame()


def test_html_is_escaped_and_short():
    budget = Budget.singletons(["<script>", "b"])
    many = RandomSet.from_mass(torch.tensor([[0.9, 0.1]]).expand(30, 2), budget)
    page = many._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<tr>") == 11
    assert "and 20 more" in page
    assert "0.900" in many[0]._repr_html_()


def test_repr(answer):
    assert repr(answer).startswith("RandomSet(2 samples over 3 classes, 2 sets; mean confidence 0.850")
    assert repr(answer[:0]) == "RandomSet(0 samples over 3 classes, 2 sets)"
    assert repr(answer[:1]).startswith("RandomSet(1 sample over")
    assert "(2, 1) samples" in repr(RandomSet.from_mass(SECTION_2.expand(2, 1, 4), PETS))
