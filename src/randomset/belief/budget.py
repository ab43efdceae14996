"""The budget: which sets of classes a random-set network has an output for."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch

from randomset._core.checks import Members, braces, checked_classes, checked_set
from randomset._core.files import check_version, expanded, replacing
from randomset.errors import BudgetError, FileFormatError, LabelError

if TYPE_CHECKING:
    from randomset.belief.operators import BudgetOperators

__all__ = ["Budget"]

MAX_POWERSET_CLASSES = 20
"""Largest number of classes for `Budget.powerset`, whose size is 2^N − 1."""

_FORMAT = "randomset.budget"


class Budget:
    """An immutable, ordered family of focal sets over named classes: O = C ∪ {A_1, …, A_K}.

    All N singletons come first, in class order; then the other K sets by cardinality and, within one
    cardinality, by their classes. The order depends on the family alone, so equal families are equal
    budgets and match the same network outputs.

    >>> budget = Budget.from_sets([{"cat", "dog"}, {"car", "truck"}], ["cat", "dog", "car", "truck"])
    >>> budget
    Budget(4 classes, 2 sets: {cat, dog}, {car, truck})
    >>> len(budget), budget.num_classes, budget.num_sets
    (6, 4, 2)
    >>> budget.index({"dog", "cat"}), {"cat", "car"} in budget
    (4, False)
    """

    _classes: tuple[str, ...]
    _sets: tuple[tuple[int, ...], ...]
    _operators: dict[torch.device, BudgetOperators]
    _origin: str

    def __init__(self, classes: SupportsIndex | Iterable[str], sets: Iterable[Members] = ()) -> None:
        names = checked_classes(classes)
        position = {name: i for i, name in enumerate(names)}
        seen: set[tuple[int, ...]] = set()
        for members in sets:
            focal = checked_set(members, names, position)
            if focal in seen:
                raise BudgetError(
                    "duplicate set in the budget",
                    got=braces(names[c] for c in focal),
                    remedy="List every set once; singletons are added automatically",
                )
            seen.add(focal)
        singletons = [(c,) for c in range(len(names))]
        larger = sorted((s for s in seen if len(s) > 1), key=lambda s: (len(s), s))
        self._store(names, (*singletons, *larger))

    def _store(self, classes: tuple[str, ...], sets: tuple[tuple[int, ...], ...], origin: str = "") -> None:
        self._classes, self._sets, self._operators, self._origin = classes, sets, {}, origin

    @classmethod
    def _trusted(
        cls, classes: tuple[str, ...], sets: tuple[tuple[int, ...], ...], origin: str = ""
    ) -> Budget:
        """Build without checks, from sets in canonical order."""
        budget = cls.__new__(cls)
        budget._store(classes, sets, origin)
        return budget

    # -- construction ---------------------------------------------------------------------------

    @classmethod
    def from_sets(cls, sets: Iterable[Members], classes: SupportsIndex | Iterable[str]) -> Budget:
        """Build a budget from sets of class names or class indices; singletons are added.

        `classes` are the names in label order, or their number.

        >>> Budget.from_sets([[0, 2], ["b", "c"], (0, 1, 2)], "abc").set_names
        ('{a}', '{b}', '{c}', '{a, c}', '{b, c}', '{a, b, c}')
        """
        return cls(classes, sets)

    @classmethod
    def singletons(cls, classes: SupportsIndex | Iterable[str]) -> Budget:
        """Build the budget that contains only the singletons (K = 0).

        >>> Budget.singletons(3)
        Budget(3 classes, 0 sets)
        """
        return cls.from_sets([], classes)

    @classmethod
    def powerset(cls, classes: SupportsIndex | Iterable[str], *, universal_set: bool = True) -> Budget:
        """Build the budget of all non-empty sets of classes, with or without Θ.

        >>> len(Budget.powerset(10)), len(Budget.powerset("abc", universal_set=False))
        (1023, 6)
        """
        names = checked_classes(classes)
        n = len(names)
        if n > MAX_POWERSET_CLASSES:
            raise BudgetError(
                "the power set is too large",
                got=f"{n} classes, which have 2^{n} sets",
                expected=f"at most {MAX_POWERSET_CLASSES} classes",
                remedy="Select the relevant sets with Budget.from_sets",
            )
        largest = n if universal_set else n - 1
        by_size = (itertools.combinations(range(n), size) for size in range(1, largest + 1))
        return cls._trusted(names, tuple(itertools.chain.from_iterable(by_size)))

    def with_universal_set(self) -> Budget:
        """Return the budget with Θ, the set of all classes, as its last set; itself if it contains Θ.

        >>> Budget.singletons("abc").with_universal_set()
        Budget(3 classes, 1 set: {a, b, c})
        """
        return self if self.has_universal_set else self._with_universal_set

    @cached_property
    def _with_universal_set(self) -> Budget:
        sets = (*self._sets, tuple(range(self.num_classes)))
        return Budget._trusted(self._classes, sets, self._origin)

    def with_origin(self, origin: Mapping[str, Any]) -> Budget:
        """Return the same budget with a record of how its sets were chosen, as JSON-serialisable values.

        The record is saved with the budget; equality and fingerprint ignore it.

        >>> budget = Budget.singletons("abc").with_origin({"method": "by hand"})
        >>> budget.origin, budget == Budget.singletons("abc")
        ({'method': 'by hand'}, True)
        """
        if not isinstance(origin, Mapping):
            raise BudgetError("origin must be a mapping", got=type(origin).__name__)
        try:
            text = json.dumps(dict(origin), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise BudgetError("origin is not JSON-serialisable", got=str(error)) from None
        return Budget._trusted(self._classes, self._sets, text)

    @property
    def origin(self) -> dict[str, Any]:
        """How the sets were chosen; empty if unknown."""
        return json.loads(self._origin) if self._origin else {}

    def operators_on(self, device: torch.device) -> BudgetOperators:
        """Return the cached operators for a device; a network builds its own `BudgetOperators`."""
        if device not in self._operators:
            from randomset.belief.operators import BudgetOperators  # imports this module

            built = BudgetOperators(self).to(device)
            self._operators[device] = built
            self.with_universal_set()._operators.setdefault(device, built.complete)
        return self._operators[device]

    # -- the family of sets ---------------------------------------------------------------------

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in label order."""
        return self._classes

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The sets as sorted tuples of class indices, in the order of the network's outputs."""
        return self._sets

    @cached_property
    def set_names(self) -> tuple[str, ...]:
        """The sets as text, such as ``{cat, dog}``."""
        return tuple(map(braces, self))

    @property
    def num_classes(self) -> int:
        """N, the number of classes (and of singletons)."""
        return len(self._classes)

    @property
    def num_sets(self) -> int:
        """K, the number of sets beyond the singletons."""
        return len(self._sets) - len(self._classes)

    def __len__(self) -> int:
        """Return |O| = N + K, the number of network outputs."""
        return len(self._sets)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """Iterate over the sets as tuples of class names."""
        return (self.names_of(k) for k in range(len(self)))

    def names_of(self, index: int) -> tuple[str, ...]:
        """Return the class names of the set at an index."""
        return tuple(self._classes[c] for c in self.sets[index])

    def index(self, members: Members) -> int:
        """Return the index of a set, given by class names or class indices."""
        focal = checked_set(members, self._classes, self._class_position)
        try:
            return self._position[focal]
        except KeyError:
            name = braces(self._classes[c] for c in focal)
            raise BudgetError("the set is not in the budget", got=name) from None

    def __contains__(self, members: Members) -> bool:
        try:
            return checked_set(members, self._classes, self._class_position) in self._position
        except BudgetError:
            return False

    @cached_property
    def _position(self) -> dict[tuple[int, ...], int]:
        return {focal: k for k, focal in enumerate(self._sets)}

    @cached_property
    def _class_position(self) -> dict[str, int]:
        return {name: c for c, name in enumerate(self._classes)}

    @property
    def has_universal_set(self) -> bool:
        """Whether Θ is in the budget; it is then the last set."""
        return len(self._sets[-1]) == self.num_classes

    @cached_property
    def is_downward_closed(self) -> bool:
        """Whether every non-empty subset of every set is in the budget.

        Only then is the plain alternating sum of Eq. 2 the inverse of Bel; see `mass_from_belief`.

        >>> Budget.from_sets([{0, 1, 2}], 3).is_downward_closed, Budget.powerset(3).is_downward_closed
        (False, True)
        """
        # By induction it suffices to check the subsets with one class less.
        return all(
            focal[:i] + focal[i + 1 :] in self._position
            for focal in self._sets[self.num_classes :]
            for i in range(len(focal))
        )

    def mask_from_sets(self, sets: Iterable[Members]) -> torch.Tensor:
        """Convert M sets of class names or indices, in the budget or not, to a boolean mask (M × N).

        >>> Budget.singletons("abc").mask_from_sets([{"a", "c"}, [1]]).tolist()
        [[True, False, True], [False, True, False]]
        """
        focal = [checked_set(s, self._classes, self._class_position, LabelError) for s in sets]
        mask = torch.zeros(len(focal), self.num_classes, dtype=torch.bool)
        rows = [i for i, members in enumerate(focal) for _ in members]
        mask[rows, list(itertools.chain.from_iterable(focal))] = True
        return mask

    # -- identity, text, JSON -------------------------------------------------------------------

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 hash of classes and sets, the same on every machine."""
        return hashlib.sha256(Budget._trusted(self._classes, self._sets).to_json().encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Budget):
            return NotImplemented
        return self is other or (self._classes == other._classes and self._sets == other._sets)

    def __hash__(self) -> int:
        return int(self.fingerprint[:15], 16)

    def __reduce__(self) -> tuple[Any, ...]:
        return Budget._trusted, (self._classes, self._sets, self._origin)  # without the cached operators

    def __repr__(self) -> str:
        k, shown = self.num_sets, 4
        first = itertools.islice(self, self.num_classes, self.num_classes + shown)
        names = ", ".join(braces(focal, shorten=6) for focal in first) + " …" * (k > shown)
        return f"Budget({self.num_classes} classes, {k} set{'s' * (k != 1)}{': ' * (k > 0)}{names})"

    def to_json(self) -> str:
        """Return the budget as JSON; the singletons are implied.

        >>> print(Budget.from_sets([{0, 1}], ["cat", "dog"]).to_json())
        {"format": "randomset.budget", "version": 1, "classes": ["cat", "dog"], "sets": [[0, 1]]}
        """
        content: dict[str, Any] = {
            "format": _FORMAT,
            "version": 1,
            "classes": self._classes,
            "sets": self._sets[self.num_classes :],
        }
        if self._origin:
            content["origin"] = self.origin
        return json.dumps(content, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Budget:
        """Read a budget from the JSON that `to_json` returns.

        >>> Budget.from_json(Budget.powerset(3).to_json()) == Budget.powerset(3)
        True
        """
        try:
            content = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            remedy = "To read a file, use Budget.load(path)"
            raise FileFormatError("the budget is not JSON", got=str(error), remedy=remedy) from error
        return cls._from_content(content)

    @classmethod
    def _from_content(cls, content: Any) -> Budget:
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            got = content.get("format") if isinstance(content, dict) else type(content).__name__
            raise FileFormatError(
                "the JSON is not a budget", got=f"format {got!r}", expected=f"format {_FORMAT!r}"
            )
        check_version(content.get("version"), 1, "the budget")
        classes, sets = content.get("classes"), content.get("sets")
        if not (isinstance(classes, list) and isinstance(sets, list)):
            raise FileFormatError("the budget must have the lists 'classes' and 'sets'")
        for focal in sets:
            if not (isinstance(focal, list) and all(type(c) is int for c in focal)):
                raise FileFormatError("a set in the budget must be a list of class indices", got=focal)
        budget = cls.from_sets(sets, classes)
        origin = content.get("origin", {})
        if not isinstance(origin, dict):
            raise FileFormatError("the origin of the budget must be an object", got=type(origin).__name__)
        return budget.with_origin(origin) if origin else budget

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the JSON to a file, atomically."""
        path = expanded(path)
        with replacing(path) as temporary:
            temporary.write_text(self.to_json() + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Budget:
        """Read a file written by `save` or `randomset budget`.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Budget.load(Budget.powerset(3).save(folder + "/budget.json")) == Budget.powerset(3)
        True
        """
        try:
            return cls._from_content(json.loads(expanded(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:  # including FileFormatError
            got = f"{path}: {getattr(error, 'strerror', None) or error}"
            raise FileFormatError("the budget cannot be read", got=got) from None
