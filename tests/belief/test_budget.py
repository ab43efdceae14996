import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from randomset import Budget
from randomset._core.checks import braces
from randomset.errors import BudgetError, FileFormatError, LabelError, RandomSetError
from tests.strategies import budgets

ANIMALS = ["cat", "dog", "fox", "car"]


def test_order_is_singletons_then_cardinality_then_classes():
    sets = [{"car", "cat", "dog"}, {"fox", "car"}, ["dog", "cat"], ("cat", "fox")]
    budget = Budget.from_sets(sets, ANIMALS)
    assert budget.sets == ((0,), (1,), (2,), (3,), (0, 1), (0, 2), (2, 3), (0, 1, 3))
    assert list(budget)[4:] == [("cat", "dog"), ("cat", "fox"), ("fox", "car"), ("cat", "dog", "car")]
    assert (budget.num_classes, budget.num_sets, len(budget)) == (4, 4, 8)


def test_singletons_are_optional():
    assert Budget.from_sets([{0}, {0, 1}], 3) == Budget.from_sets([{0, 1}], 3)
    assert Budget.singletons(ANIMALS).sets == ((0,), (1,), (2,), (3,))


@pytest.mark.parametrize("n", [2, 3, 6])
def test_powerset(n):
    assert len(Budget.powerset(n)) == 2**n - 1
    assert Budget.powerset(n).has_universal_set
    without = Budget.powerset(n, universal_set=False)
    assert len(without) == 2**n - 2
    assert not without.has_universal_set
    assert without.with_universal_set() == Budget.powerset(n)


def test_universal_set_is_added_once_and_last():
    budget = Budget.from_sets([{0, 1}], 3).with_universal_set()
    assert budget.sets[-1] == (0, 1, 2)
    assert budget.with_universal_set() is budget


@given(budgets())
def test_json_round_trip(budget):
    again = Budget.from_json(budget.to_json())
    assert again == budget
    assert again.fingerprint == budget.fingerprint
    assert hash(again) == hash(budget)


def test_copies_are_equal_and_without_cache():
    budget = Budget.from_sets([{0, 1}], 3)
    budget.operators_on(torch.device("cpu"))
    for again in (copy.deepcopy(budget), pickle.loads(pickle.dumps(budget))):
        assert again == budget
        assert not again._operators


@pytest.mark.slow
def test_hash_is_the_same_in_another_process():
    code = "from randomset import Budget; print(hash(Budget.from_sets([{'é', 'b'}], ['é', 'b', 'c'])))"
    out = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert out[0] == out[1] == f"{hash(Budget.from_sets([{0, 1}], ['é', 'b', 'c']))}\n"


def test_equality_sees_names_and_sets():
    budget = Budget.from_sets([{0, 1}], "abc")
    assert budget != Budget.from_sets([{0, 2}], "abc")
    assert budget != Budget.from_sets([{0, 1}], "abd")
    assert budget != "budget"
    assert len({budget, Budget.from_sets([{"a", "b"}], "abc")}) == 1


def test_repr_is_readable_and_short():
    assert repr(Budget.from_sets([{"cat", "dog"}], ANIMALS)) == "Budget(4 classes, 1 set: {cat, dog})"
    assert repr(Budget.powerset(10)).endswith("1013 sets: {0, 1}, {0, 2}, {0, 3}, {0, 4} …)")


def test_constructor_checks_its_arguments():
    assert Budget("abc", [{"a", "b"}]) == Budget.from_sets([{0, 1}], "abc")
    assert Budget(np.int64(3)) == Budget.singletons(3)
    with pytest.raises(BudgetError, match="duplicate set"):
        Budget("abc", [{0, 1}, {1, 0}])


def test_immutable():
    budget = Budget.from_sets([{0, 1}], 3)
    with pytest.raises(AttributeError):
        budget.classes = ("x",)  # type: ignore[misc]
    with pytest.raises(TypeError):
        budget.sets[0] = (1,)  # type: ignore[index]


@pytest.mark.parametrize(
    ("sets", "classes", "message"),
    [
        ([[]], 3, "a set of classes is empty"),
        ([{0, 1}, [1, 0]], 3, r"duplicate set in the budget; got \{0, 1\}"),
        ([{"cow", "dog"}], ANIMALS, "unknown class name; got cow; expected one of cat, dog"),
        ([{"dgo"}], ANIMALS, r"unknown class name; got dgo; .*Did you mean dog\?"),
        ([torch.tensor([False, True, True])], 3, r"must be 1-D and integer; got torch\.bool \(3,\)"),
        ([{1, 2}], [1, 2, 3], "a class name must be a string; got 1; .*always an index"),
        ([], 2.5, "must be names or their number; got 2.5"),
        ([], ["a", "\ud800"], "not valid Unicode"),
        ([{0, 7}], 3, "class index out of range; got 7; expected 0 to 2"),
        ([{0, -1}], 3, "class index out of range; got -1"),
        ([[0.5, 1]], 3, "a class must be a name or an index; got 0.5"),
        ([[True, 2]], 3, "a class must be a name or an index; got True"),
        (["cat"], ANIMALS, "a set of classes must be a collection; got cat"),
        ([3], ANIMALS, "a set of classes must be a collection; got 3"),
        ([], 1, r"too few classes; got 1; expected two or more"),
        ([], 0, "too few classes"),
        ([], ["a", "a"], "duplicate class name; got a"),
        ([], ["a", 3], "a class name must be a string; got 3"),
    ],
)
def test_invalid_families(sets, classes, message):
    with pytest.raises(BudgetError, match=message):
        Budget.from_sets(sets, classes)


def test_power_set_that_is_too_large():
    with pytest.raises(BudgetError, match=r"2\^30 sets; expected at most 20 classes"):
        Budget.powerset(30)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-3, 5) | st.floats(allow_nan=False) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=12,
    ),
    st.sampled_from([None, "classes", "sets", "version", "format"]),
)
def test_arbitrary_json_gives_a_budget_or_a_clear_error(content, place):
    if place is not None:
        good = {"format": "randomset.budget", "version": 1, "classes": ["a", "b"], "sets": [[0, 1]]}
        content = {**good, place: content}
    try:
        budget = Budget.from_json(json.dumps(content))
    except RandomSetError:
        return
    assert len(budget) >= 2
    assert Budget.from_json(budget.to_json()) == budget


@pytest.mark.parametrize("text", ["", "{", "[1, 2", b"\xff\xfe", "[" * 100_000])
def test_text_that_is_not_json(text):
    with pytest.raises(FileFormatError, match="the budget is not JSON"):
        Budget.from_json(text)


class TestOrigin:
    def test_saved_but_ignored_by_equality(self):
        plain = Budget.from_sets([{0, 1}], "abc")
        noted = plain.with_origin({"method": "by hand", "overlaps": [0.5]})
        assert (plain.origin, noted.origin["overlaps"]) == ({}, [0.5])
        assert noted == plain
        assert noted.fingerprint == plain.fingerprint
        assert hash(noted) == hash(plain)
        for again in (
            Budget.from_json(noted.to_json()),
            pickle.loads(pickle.dumps(noted)),
            noted.with_universal_set(),
        ):
            assert again.origin == noted.origin
        assert "origin" not in plain.to_json()

    def test_origin_is_immutable(self):
        given = {"overlaps": [0.5]}
        noted = Budget.singletons(3).with_origin(given)
        given["overlaps"].append(1.0)
        noted.origin["overlaps"].append(2.0)
        assert noted.origin == {"overlaps": [0.5]}

    @pytest.mark.parametrize("origin", [{"a": float("nan")}, {"a": object()}, {1: {2}}])
    def test_values_that_are_not_json(self, origin):
        with pytest.raises(BudgetError, match="not JSON-serialisable"):
            Budget.singletons(3).with_origin(origin)

    def test_origin_must_be_a_mapping(self):
        with pytest.raises(BudgetError, match="must be a mapping; got list"):
            Budget.singletons(3).with_origin([1, 2])  # type: ignore[arg-type]

    def test_invalid_origin_in_a_file(self):
        text = Budget.singletons(3).to_json().replace('"sets"', '"origin": 3, "sets"')
        with pytest.raises(FileFormatError, match="must be an object; got int"):
            Budget.from_json(text)


def test_files(tmp_path):
    budget = Budget.from_sets([{0, 1}], "abc").with_origin({"method": "by hand"})
    path = budget.save(tmp_path / "budget.json")
    assert Budget.load(path).origin == {"method": "by hand"}
    with pytest.raises(FileFormatError, match=r"cannot be read; got .*No such file"):
        Budget.load(tmp_path / "other.json")
    with pytest.raises(FileFormatError, match=r"not JSON.*use Budget.load\(path\)"):
        Budget.from_json("budget.json")
    for content in ("{", "[]", '{"format": "randomset.budget", "version": 99}', "\u00e9"):
        (tmp_path / "bad.json").write_text(content, encoding="utf-8")
        with pytest.raises(FileFormatError, match=r"cannot be read; got .*bad\.json: ") as found:
            Budget.load(tmp_path / "bad.json")
        assert "Budget.load" not in str(found.value)


def test_file_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    budget = Budget.from_sets([{0, 1}], "abc")
    assert budget.save("~/budget.json") == tmp_path / "budget.json"
    assert Budget.load("~/budget.json") == budget


def test_unordered_classes():
    for classes in ({"a", "b"}, {"a": 0, "b": 1}):
        with pytest.raises(BudgetError, match="unordered"):
            Budget.singletons(classes)


def test_names_and_indices_in_any_collection():
    by_name = Budget.from_sets([{"cat", "dog"}], ANIMALS)
    kinds: list[Any] = [(0, 1), np.array([1, 0]), torch.tensor([0, 1]), iter(["dog", 0]), {0: "", 1: ""}]
    for members in kinds:
        assert Budget.from_sets([members], ANIMALS) == by_name


def test_repr_of_large_sets_is_short():
    assert len(repr(Budget.singletons(1000).with_universal_set())) < 100


def test_invalid_label_sets_raise_label_errors():
    with pytest.raises(LabelError, match="empty"):
        Budget.singletons(3).mask_from_sets([[]])
    with pytest.raises(LabelError, match="unknown class name; got cow"):
        Budget.singletons(ANIMALS).mask_from_sets([{"cow"}])


def test_braces():
    assert braces("abc") == "{a, b, c}"
    assert braces("abc", shorten=3) == "{a, b, c}"
    assert braces("abcd", shorten=2) == "{a, b, … 2 more}"


@given(budgets())
def test_downward_closure_against_the_definition(budget):
    family = {frozenset(s) for s in budget.sets}
    literal = all(
        frozenset(c for c in focal if code >> c & 1) in family
        for focal in family
        for code in range(2**budget.num_classes)
        if any(code >> c & 1 for c in focal)
    )
    assert budget.is_downward_closed == literal


def test_mask_and_index():
    budget = Budget.from_sets([{0, 1}], ANIMALS)
    assert budget.mask_from_sets([["car"], {0, 2}]).tolist() == [[0, 0, 0, 1], [1, 0, 1, 0]]
    assert budget.index(["dog", "cat"]) == 4
    assert {"fox"} in budget
    assert {"fox", "zebra"} not in budget
    with pytest.raises(BudgetError, match=r"not in the budget; got \{dog, fox\}"):
        budget.index({"dog", "fox"})
