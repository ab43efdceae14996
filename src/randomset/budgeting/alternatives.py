"""Budgets without features: from a confusion matrix, from a hierarchy, or at random."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, SupportsIndex

import numpy as np
from torch import Tensor

from randomset._core.checks import is_whole
from randomset._core.labels import checked_classes
from randomset.belief.budget import Budget
from randomset.budgeting.checks import check_num_sets
from randomset.budgeting.gaussians import Floats
from randomset.budgeting.knee import knee
from randomset.budgeting.patterns import Patterns
from randomset.budgeting.search import Focal, best_sets
from randomset.errors import BudgetError, RandomSetWarning, ShapeError

__all__ = ["from_confusion", "from_hierarchy", "random_sets"]

_MOST_MEMBERSHIPS = 2**24


def from_confusion(
    matrix: Any, num_sets: int | Literal["auto"] = 20, classes: SupportsIndex | Iterable[str] | None = None
) -> Budget:
    """Choose the sets of classes that a model confuses.

    Row c of the matrix counts (or averages) what the model predicts where class c is true. Divided by its sum
    it is a distribution p_c, and two classes are alike as far as theirs overlap:

    overlap(A) = Σ_j min_{c∈A} p_c(j) / Σ_j max_{c∈A} p_c(j),

    the intersection over union of the areas under them. The best sets are found exactly, of any size. Classes
    that are never confused make no set, so fewer than `num_sets` may come (with a warning).

    >>> from_confusion([[95, 5, 0], [30, 70, 0], [0, 10, 90]], 2, ["cat", "dog", "car"])
    Budget(3 classes, 2 sets: {cat, dog}, {dog, car})
    """
    counts = _checked_matrix(matrix)
    if classes is None and hasattr(matrix, "columns"):  # a pandas table brings its names
        classes = [str(name) for name in matrix.columns]
    names = checked_classes(len(counts) if classes is None else classes)
    if len(names) != len(counts):
        raise ShapeError(
            "the matrix does not fit the classes", got=f"{len(counts)} rows", expected=f"{len(names)}"
        )
    check_num_sets(num_sets, len(names))
    wanted = max(100, 4 * len(names)) if num_sets == "auto" else int(num_sets)
    best = best_sets(_levels(counts / counts.sum(1, keepdims=True)), wanted)
    chosen = best.first(knee(best.overlaps) if num_sets == "auto" else wanted)
    if len(chosen) < wanted and num_sets != "auto":
        warnings.warn(
            f"only {len(chosen)} of {wanted} sets of classes are confused at all",
            RandomSetWarning,
            stacklevel=2,
        )
    budget = Budget.from_sets(chosen.sets, names)
    overlap = dict(zip(chosen.sets, chosen.overlaps.tolist(), strict=True))
    ordered = [round(overlap[focal], 6) for focal in budget.sets[len(names) :]]
    return budget.with_origin({"method": "confusion matrix", "overlaps": ordered})


def _checked_matrix(matrix: Any) -> Floats:
    try:
        counts = np.asarray(matrix.detach().cpu() if isinstance(matrix, Tensor) else matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError("the confusion matrix is no table of numbers", got=str(error)) from None
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or len(counts) < 2:
        raise ShapeError(
            "a confusion matrix is square", got=f"shape {counts.shape}", expected="classes × classes"
        )
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise ShapeError("a confusion matrix holds counts or shares", got="negative or non-finite entries")
    empty = np.flatnonzero(counts.sum(1) == 0)
    if len(empty):
        raise ShapeError(
            "a class was never true in the confusion matrix",
            got=f"row {int(empty[0])} is empty",
            remedy="Use data that has every class; rows are true classes, columns predictions",
        )
    return counts


def _levels(shares: Floats) -> Patterns:
    """Cut the areas under the distributions into levels: the classes that reach up to each."""
    reached = shares > 0
    sizes = reached.sum(0)
    if (sizes * (sizes + 1) // 2).sum() > _MOST_MEMBERSHIPS:
        raise ShapeError(
            "the confusion matrix has too few zeros for its size",
            got=f"{int(reached.sum())} entries above zero, {len(shares)} classes",
            remedy="Set entries that do not matter, below 0.001 for example, to zero",
        )
    classes: list[int] = []
    starts, heights = [0], []
    for j in range(shares.shape[1]):
        order = np.argsort(-shares[:, j], kind="stable")[: sizes[j]].tolist()
        levels = [*shares[order, j].tolist(), 0.0]
        for size, (high, low) in enumerate(itertools.pairwise(levels), start=1):
            if high > low:
                classes += sorted(order[:size])
                starts.append(len(classes))
                heights.append(high - low)
    return Patterns(np.array(starts), np.array(classes), np.array(heights)[:, None], len(shares))


def from_hierarchy(
    tree: Mapping[str, Any] | Sequence[Any], classes: Iterable[str] | None = None, num_sets: int | None = None
) -> Budget:
    """Choose the sets of classes below each inner node of a hierarchy.

    The tree is nested, {"animal": {"pet": ["cat", "dog"], "wild": ["wolf"]}, …}, or says the parents of each
    name, {"cat": "pet", "dog": "pet", "pet": "animal", …}, several in a list as WordNet has them. Classes are
    its leaves in order, or the names in `classes`, which may also stand inside the tree. In a nested tree,
    groups of the same name in different places are different groups. With `num_sets`, the smallest sets come
    first, equal sizes in class order. The budget need not be downward closed.

    >>> from_hierarchy({"animal": {"pet": ["cat", "dog"], "wild": ["wolf"]}, "vehicle": ["car", "truck"]})
    Budget(5 classes, 4 sets: {cat, dog}, {car, truck}, {cat, dog, wolf}, {cat, dog, wolf, car, truck})
    >>> from_hierarchy({"cat": "pet", "dog": "pet", "wolf": "animal", "pet": "animal"}, num_sets=1)
    Budget(3 classes, 1 set: {cat, dog})
    """
    if isinstance(tree, str) or not isinstance(tree, Iterable) or not tree:
        raise BudgetError(
            "the hierarchy is no tree", got=repr(tree), expected="a nested or parent mapping, or lists"
        )
    if num_sets is not None:
        check_num_sets(num_sets, 1000, auto=False)
    if isinstance(classes, str) or not (classes is None or isinstance(classes, Iterable)):
        raise BudgetError(
            "the classes are no names",
            got=repr(classes),
            expected="a list of names that stand in the tree",
            remedy=f"A number of sets goes by its name: num_sets={classes}" if is_whole(classes, 0) else "",
        )
    classes = None if classes is None else list(classes)
    parents = _tells_parents(tree, classes)
    children = _children_from_parents(tree) if parents else _children_from_nested(tree)
    inner = {node for node, below in children.items() if below}
    leaves = list(dict.fromkeys(_name(node) for node in children if node not in inner))
    if not leaves and classes is None:
        raise BudgetError("the hierarchy runs in a circle", got="no name without others below it")
    names = checked_classes(leaves if classes is None else classes)
    position = {name: i for i, name in enumerate(names)}
    there = {_name(node) for node in children}
    unknown = [name for name in names if name not in there]
    if unknown:
        raise BudgetError("a class is not in the hierarchy", got=unknown[0])
    below: dict[Node, frozenset[int]] = {}
    found = {_descend(node, children, position, below, ()) for node in inner}
    sets = sorted((tuple(sorted(s)) for s in found if len(s) > 1), key=lambda s: (len(s), s))
    if num_sets is not None and num_sets > len(sets):
        raise BudgetError(
            "the hierarchy has fewer sets", got=f"{num_sets} asked for", expected=f"at most {len(sets)}"
        )
    return Budget.from_sets(sets[:num_sets], names).with_origin({"method": "hierarchy"})


def _tells_parents(tree: Any, classes: list[str] | None) -> bool:
    """Whether the tree maps names to their parents: some parent is plain text, or every class is a key."""
    if not isinstance(tree, Mapping):
        return False
    plain = any(isinstance(above, str) for above in tree.values())
    return plain or (bool(classes) and all(name in tree for name in classes or ()))


Node = str | tuple[str, ...]
"""A name, or in a nested tree the way to it: names from the outermost to its own, "" for a nameless group."""


def _name(node: Node) -> str:
    return node if isinstance(node, str) else node[-1]


def _children_from_parents(parents: Any) -> dict[Node, list[Node]]:
    children: dict[Node, list[Node]] = {name: [] for name in parents}
    for name, above in parents.items():
        for parent in [above] if isinstance(above, str) else above or ():
            children.setdefault(parent, []).append(name)
    return children


def _children_from_nested(tree: Any) -> dict[Node, list[Node]]:
    root = ("",)
    children: dict[tuple[str, ...], list[tuple[str, ...]]] = {root: []}

    def added(parent: tuple[str, ...], *way: str) -> tuple[str, ...]:
        node = (*parent, *way)
        children[parent].append(node)
        children.setdefault(node, [])
        return node

    def visit(inside: Any, parent: tuple[str, ...]) -> None:
        if isinstance(inside, Mapping):
            for name, below in inside.items():
                visit(below, added(parent, name))
        elif isinstance(inside, str):
            added(parent, inside)
        elif isinstance(inside, Iterable):
            for number, part in enumerate(inside):
                if isinstance(part, str):
                    added(parent, part)
                else:  # a group without a name
                    visit(part, added(parent, f"{number}", ""))
        elif inside is not None:
            raise BudgetError("a node of the hierarchy is neither a name nor a collection", got=inside)

    visit(tree, root)
    groups: dict[str, list[tuple[str, ...]]] = {}
    for node, below in children.items():
        if below:
            groups.setdefault(node[-1], []).append(node)
    for node, below in children.items():
        meant = groups.get(node[-1], [])
        if not below and len(meant) == 1 and meant[0] != node[: len(meant[0])]:
            below.append(meant[0])  # a group that is told elsewhere: {"animal": ["pet"], "pet": ["cat"]}
    return {node: list(below) for node, below in children.items()}


def _descend(
    node: Node,
    children: dict[Node, list[Node]],
    position: dict[str, int],
    below: dict[Node, frozenset[int]],
    path: tuple[Node, ...],
) -> frozenset[int]:
    """Return the classes at or below a node."""
    if node in path:
        raise BudgetError("the hierarchy runs in a circle", got=" → ".join(map(_name, [*path, node])))
    if node not in below:
        name = _name(node)
        own = frozenset([position[name]]) if name in position else frozenset()
        parts = (_descend(child, children, position, below, (*path, node)) for child in children[node])
        below[node] = own.union(*parts)
    return below[node]


def random_sets(
    classes: SupportsIndex | Iterable[str],
    num_sets: int | None = None,
    *,
    like: Budget | None = None,
    seed: int = 0,
) -> Budget:
    """Draw sets of two or more classes at random, as a baseline for chosen ones.

    All sets are equally likely; with `like`, there are as many sets of each size as in that budget.

    >>> chosen = Budget.from_sets([{0, 1}, {2, 3}, {0, 1, 2}], 5)
    >>> drawn = random_sets(5, like=chosen, seed=1)
    >>> [len(focal) for focal in drawn.sets[5:]]
    [2, 2, 3]
    """
    names = checked_classes(classes)
    n = len(names)
    if (like is None) == (num_sets is None):
        raise BudgetError(
            "give either num_sets or a budget to be like", got=f"num_sets={num_sets}, like={like}"
        )
    draw = np.random.default_rng(seed)
    chosen: set[Focal] = set()
    if like is not None:
        if like.num_classes != n:
            raise BudgetError(
                "the budget to be like has other classes", got=like.num_classes, expected=f"{n}"
            )
        for size, count in Counter(map(len, like.sets[n:])).items():
            alike: set[Focal] = set()
            while len(alike) < count:
                alike.add(tuple(sorted(draw.choice(n, size, replace=False).tolist())))
            chosen |= alike
    else:
        check_num_sets(num_sets, n, auto=False)
        while len(chosen) < int(num_sets or 0):
            members = np.flatnonzero(draw.random(n) < 0.5)
            if len(members) > 1:
                chosen.add(tuple(members.tolist()))
    return Budget.from_sets(sorted(chosen), names).with_origin({"method": "random sets", "seed": seed})
