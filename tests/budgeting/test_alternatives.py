"""Budgets from confusion matrices, from hierarchies, and at random."""

import itertools
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from randomset import Budget
from randomset.budgeting import from_confusion, from_hierarchy, random_sets
from randomset.budgeting.alternatives import _levels
from randomset.budgeting.search import best_sets
from randomset.errors import BudgetError, RandomSetWarning, ShapeError
from tests.strategies import seeds


class TestConfusion:
    @given(seed=seeds, n=st.integers(2, 8), zeros=st.floats(0, 0.8))
    def test_agrees_with_the_formula_over_all_subsets(self, seed, n, zeros):
        draw = np.random.default_rng(seed)
        matrix = draw.random((n, n)) * (draw.random((n, n)) > zeros) + np.eye(n)
        share = matrix / matrix.sum(1, keepdims=True)
        every = {
            focal: share[list(focal)].min(0).sum() / share[list(focal)].max(0).sum()
            for size in range(2, n + 1)
            for focal in itertools.combinations(range(n), size)
        }
        found = best_sets(_levels(share), 30)
        ranked = sorted((v for v in every.values() if v > 0), reverse=True)[:30]
        np.testing.assert_allclose(found.overlaps, ranked, rtol=2e-9)
        for focal, overlap in zip(found.sets, found.overlaps, strict=True):
            assert every[focal] == pytest.approx(overlap, rel=2e-9)

    def test_hand_worked(self):
        budget = from_confusion([[9, 1, 0], [1, 9, 0], [0, 0, 5]], 1, ["cat", "dog", "car"])
        assert budget.set_names[3:] == ("{cat, dog}",)
        assert budget.origin["overlaps"] == [pytest.approx(0.2 / 1.8, abs=1e-6)]

    def test_a_pandas_table_brings_its_names(self):
        table = pd.DataFrame([[9, 1], [1, 9]], columns=["cat", "dog"])
        assert from_confusion(table, 1).set_names[2:] == ("{cat, dog}",)

    def test_fewer_sets_than_asked_for(self):
        with pytest.warns(RandomSetWarning, match="only 1 of 3 sets of classes are confused"):
            assert from_confusion([[9, 1, 0], [1, 9, 0], [0, 0, 5]], 3).num_sets == 1

    def test_automatic_number(self):
        matrix = 100.0 * np.eye(10) + 0.05
        for a, b in ((0, 1), (2, 3), (4, 5)):
            matrix[a, b] = matrix[b, a] = 30
        assert set(from_confusion(matrix, "auto").sets[10:]) >= {(0, 1), (2, 3), (4, 5)}
        assert from_confusion(matrix, "auto").num_sets < 8

    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            (np.ones((2, 3)), "square"),
            ([[1, -1], [0, 1]], "negative"),
            ([[1, np.nan], [0, 1]], "non-finite"),
            ([["a", "b"], ["c", "d"]], "must be numeric"),
            ([[1, 0], [0, 0]], "no samples .*row 1 is zero"),
        ],
    )
    def test_bad_matrices(self, matrix, message):
        with pytest.raises(ShapeError, match=message):
            from_confusion(matrix, 1)

    def test_no_sets(self):
        assert from_confusion(np.ones((3, 3)), 0) == Budget.singletons(3)

    def test_bad_numbers(self):
        with pytest.raises(BudgetError, match=r"exceeds the number of sets that exist; got 5 .* = 4"):
            from_confusion(np.ones((3, 3)), 5)
        with pytest.raises(ShapeError, match="does not match the classes"):
            from_confusion(np.ones((3, 3)), 1, ["a", "b"])


class TestHierarchy:
    TREE: ClassVar = {
        "animal": {"pet": ["cat", "dog"], "wild": {"canine": ["wolf", "fox"]}},
        "vehicle": ["car", "truck"],
    }

    def test_nested(self):
        budget = from_hierarchy(self.TREE)
        assert budget.classes == ("cat", "dog", "wolf", "fox", "car", "truck")
        assert budget.set_names[6:] == (
            "{cat, dog}",
            "{wolf, fox}",
            "{car, truck}",
            "{cat, dog, wolf, fox}",
            "{cat, dog, wolf, fox, car, truck}",
        )

    def test_parents_several_of_them_and_class_order(self):
        parents = {
            "cat": "pet",
            "dog": ["pet", "canine"],
            "wolf": "canine",
            "pet": "animal",
            "canine": "animal",
        }
        budget = from_hierarchy(parents, classes=["wolf", "dog", "cat"])
        assert budget == Budget.from_sets(
            [{"cat", "dog"}, {"dog", "wolf"}, {0, 1, 2}], ["wolf", "dog", "cat"]
        )

    def test_a_class_inside_the_tree(self):
        budget = from_hierarchy({"poodle": "dog", "dog": "animal", "cat": "animal"}, ["dog", "poodle", "cat"])
        assert budget.set_names[3:] == ("{dog, poodle}", "{dog, poodle, cat}")

    def test_parents_in_lists_only(self):
        parents = {"cat": ["pet"], "dog": ["pet", "canine"], "wolf": ["canine"]}
        budget = from_hierarchy(parents, classes=["cat", "dog", "wolf"])
        assert budget.set_names[3:] == ("{cat, dog}", "{dog, wolf}")

    def test_groups_without_names(self):
        budget = from_hierarchy([["cat", "dog"], ["car", "truck"]])
        assert budget.set_names[4:] == ("{cat, dog}", "{car, truck}", "{cat, dog, car, truck}")
        assert "{cat, dog}" in from_hierarchy({"pet": [["cat", "dog"], "fish"]}).set_names

    def test_groups_of_the_same_name_in_different_places(self):
        tree = {"animal": {"small": ["cat", "mouse"]}, "vehicle": {"small": ["bike", "scooter"]}}
        budget = from_hierarchy(tree)
        assert budget.classes == ("cat", "mouse", "bike", "scooter")
        assert budget.set_names[4:] == ("{cat, mouse}", "{bike, scooter}", "{cat, mouse, bike, scooter}")

    def test_a_group_that_is_told_elsewhere_or_named_like_a_class_in_it(self):
        budget = from_hierarchy({"animal": ["pet", "wolf"], "pet": ["cat", "dog"]})
        assert budget.set_names[3:] == ("{cat, dog}", "{wolf, cat, dog}")
        assert from_hierarchy({"cat": ["cat", "lion"], "car": []}, ["cat", "lion", "car"]).set_names[3:] == (
            "{cat, lion}",
            "{cat, lion, car}",
        )

    def test_one_class_in_several_groups(self):
        budget = from_hierarchy({"pet": ["cat", "dog"], "canine": ["dog", "wolf"]})
        assert budget.classes == ("cat", "dog", "wolf")
        assert budget.set_names[3:] == ("{cat, dog}", "{dog, wolf}", "{cat, dog, wolf}")

    def test_the_smallest_sets_first(self):
        assert from_hierarchy(self.TREE, num_sets=3).set_names[6:] == (
            "{cat, dog}",
            "{wolf, fox}",
            "{car, truck}",
        )

    @pytest.mark.parametrize(
        ("tree", "options", "message"),
        [
            ({"a": "b", "b": "a"}, {"classes": ["a", "b"]}, "contains a cycle"),
            (TREE, {"classes": ["cat", "cow"]}, "not in the hierarchy; got cow"),
            (TREE, {"num_sets": 9}, "exceeds the sets in the hierarchy; got 9; expected at most 5"),
            ({"a": 3}, {}, "must be a name or a collection"),
            ({"a": "b", "b": "a"}, {}, "contains a cycle"),
            ({}, {}, "invalid hierarchy; got {}"),
            ("tree.json", {}, "invalid hierarchy; got 'tree.json'"),
            (TREE, {"num_sets": "auto"}, "must be a non-negative integer; got 'auto'"),
            (TREE, {"classes": 2}, "must be a list of names .*; got 2.*num_sets=2"),
            (TREE, {"classes": "cat"}, "must be a list of names .*; got 'cat'"),
        ],
    )
    def test_bad_trees(self, tree, options, message):
        with pytest.raises(BudgetError, match=message):
            from_hierarchy(tree, **options)


class TestRandom:
    @given(seed=seeds, n=st.integers(3, 8))
    def test_count_and_repeatability(self, seed, n):
        count = min(10, 2**n - n - 1)
        budget = random_sets(n, count, seed=seed)
        assert budget.num_sets == count
        assert budget == random_sets(n, count, seed=seed)

    def test_every_set_is_equally_likely(self):
        drawn = [random_sets(3, 1, seed=s).sets[3] for s in range(400)]
        shares = [drawn.count(focal) / 400 for focal in ((0, 1), (0, 2), (1, 2), (0, 1, 2))]
        assert max(abs(share - 0.25) for share in shares) < 0.08

    def test_sizes_like_another_budget(self):
        chosen = Budget.from_sets([{0, 1}, {1, 2}, {0, 1, 2}, set(range(6))], 6)
        assert [len(s) for s in random_sets(6, like=chosen, seed=4).sets[6:]] == [2, 2, 3, 6]

    @pytest.mark.parametrize(
        "options",
        [{}, {"num_sets": 1, "like": Budget.singletons(4)}, {"num_sets": 99}, {"like": Budget.singletons(5)}],
    )
    def test_bad_wishes(self, options):
        with pytest.raises(BudgetError):
            random_sets(4, **options)
