"""RandomSet: a batch of belief functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from randomset._core.packages import optional_package
from randomset.belief import fusion, storage, text, transforms
from randomset.belief.budget import Budget
from randomset.belief.functions import BeliefFunctions, lazy
from randomset.belief.operators import BudgetOperators
from randomset.belief.repair import Repair, Validity, check_finite, clipped, repair_columns
from randomset.belief.sums import ONE, over_sets_each, product_over_sets
from randomset.belief.transforms import check_distribution, rounding
from randomset.errors import BudgetError, RandomSetError, ShapeError

if TYPE_CHECKING:
    import numpy
    import pandas

__all__ = ["RandomSet"]

Rule = Literal["dempster", "yager", "disjunctive", "mean"]


class RandomSet(BeliefFunctions):
    """An immutable batch of valid belief functions over one budget, as predicted by a network.

    It stores the masses (…, |O|); everything else is computed on first access and cached. Its `budget` always
    includes Θ, the set of all classes, which holds the mass not assigned to smaller sets. If the network's
    budget lacks Θ, masses and beliefs have one more column than the network has outputs.

    >>> budget = Budget.from_sets([{"cat", "dog"}], ["cat", "dog", "car"])
    >>> answer = RandomSet.from_mass(torch.tensor([[0.5, 0.0, 0.1, 0.4], [0.0, 0.0, 1.0, 0.0]]), budget)
    >>> answer
    RandomSet(2 samples over 3 classes, 2 sets; mean confidence 0.850, mean credal width 0.200)
    >>> answer.labels, answer.confidence, answer.credal_width
    (tensor([0, 2]), tensor([0.7000, 1.0000]), tensor([0.4000, 0.0000]))
    >>> print(answer.explain(0))
    0.50 on {cat}, 0.40 on {cat, dog}, 0.10 on {car}; predicted cat, probability in [0.50, 0.90]
    """

    _validity: Validity | Callable[[], Validity]
    _reliability: Tensor | None
    _familiar_from: float | Tensor
    _disagreement: Tensor | None

    def __init__(
        self,
        mass: Tensor,
        family: Budget | BudgetOperators,
        validity: Validity | Callable[[], Validity],
        reliability: Tensor | None = None,
        familiar_from: float | Tensor = text.FAMILIAR,
        disagreement: Tensor | None = None,
    ) -> None:
        # The from_… constructors check and repair; this one only stores masses over a budget with Θ.
        budget = family if isinstance(family, Budget) else family.budget
        self.__dict__.update(
            mass=mass, budget=budget, _family=family, _validity=validity, _reliability=reliability,
            _familiar_from=familiar_from, _disagreement=disagreement,
        )  # fmt: skip

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a RandomSet is immutable: {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a RandomSet is immutable: {name!r} cannot be deleted")

    # -- interface shared by all predictions ----------------------------------------------------

    @property
    def probabilities(self) -> Tensor:
        """The pignistic probability (…, N), under the name that all predictions share."""
        return self.pignistic

    @property
    def scores(self) -> dict[str, Tensor]:
        """Uncertainty scores by name (…), higher for less certain samples."""
        scores = {
            "entropy": self.entropy,
            "1 - maximum": 1 - self.confidence,
            "credal width": self.credal_width,
            "non-specificity": self.nonspecificity,
            "mass on Θ": self.mass[..., -1],
        }
        scores |= {"1 - reliability": 1 - self.reliability} if self.is_discounted else {}
        return scores if self._disagreement is None else {**scores, "mutual information": self._disagreement}

    @lazy
    def validity(self) -> Validity:
        """How far the raw predictions were from valid belief functions."""
        return self._validity if isinstance(self._validity, Validity) else self._validity()

    # -- construction ---------------------------------------------------------------------------

    @classmethod
    def from_logits(
        cls, logits: Tensor | Any, budget: Budget | BudgetOperators, repair: Repair = "clip"
    ) -> RandomSet:
        """Build from a network's belief logits (…, |O|): Bel = sigmoid(logits), then `repair_belief`.

        >>> RandomSet.from_logits(torch.tensor([4.0, -4.0, -4.0]), Budget.singletons("abc")).pignistic
        tensor([0.9647, 0.0177, 0.0177])
        """
        return cls._from_raw(
            transforms.full_precision(transforms.as_numbers(logits, "logits")), budget, repair, logits=True
        )

    @classmethod
    def from_belief(
        cls, belief: Tensor | Any, budget: Budget | BudgetOperators, repair: Repair = "clip"
    ) -> RandomSet:
        """Build from beliefs (…, |O|) in [0, 1], valid or not: see `repair_belief`.

        >>> RandomSet.from_belief(torch.tensor([0.5, 0.2, 0.9]), Budget.from_sets([{0, 1}], 2)).mass
        tensor([0.5000, 0.2000, 0.3000])
        """
        belief = transforms.full_precision(transforms.as_numbers(belief, "beliefs"))
        transforms.checked_operators(belief, budget, "beliefs")
        transforms.check_beliefs(belief)
        return cls._from_raw(belief, budget, repair, logits=False)

    @classmethod
    def _from_raw(
        cls, raw: Tensor, budget: Budget | BudgetOperators, repair: Repair, *, logits: bool
    ) -> RandomSet:
        operators = transforms.checked_operators(raw, budget, "logits" if logits else "beliefs")
        universal_set = operators.budget.has_universal_set
        if repair == "clip" and (inverse := operators.dense_inverse(raw)) is not None:
            raw_mass = product_over_sets(inverse, raw.sigmoid() if logits else raw)
            mass, kept = clipped(raw_mass.clamp_min(0), -1)
            check_finite(raw, kept)
            validity = partial(Validity.from_masses, raw_mass, kept, universal_set=universal_set)
        else:
            columns = repair_columns(operators, repair)
            mass, raw_sum, kept = over_sets_each(columns, raw, operators.footprint, sigmoid=logits)
            check_finite(raw, kept - raw_sum)
            validity = partial(Validity.from_sums, raw_sum, kept, universal_set=universal_set)
        return cls(mass, operators.complete, validity)

    @classmethod
    def from_mass(cls, mass: Tensor | Any, budget: Budget | BudgetOperators) -> RandomSet:
        """Build from masses (…, |O|) that are non-negative and sum to one.

        >>> RandomSet.from_mass(torch.tensor([0.2, 0.3, 0.5]), Budget.from_sets([{0, 1}], 2)).lower
        tensor([0.2000, 0.3000])
        """
        given = transforms.as_numbers(mass, "masses")
        mass = transforms.full_precision(given)
        operators = transforms.checked_operators(mass, budget, "masses")
        if not torch.compiler.is_compiling():
            check_distribution(mass, "masses", rounding(given.dtype))
        mass = mass.clamp_min(0)
        mass = mass / mass.sum(-1, keepdim=True)
        if not operators.budget.has_universal_set:
            mass = torch.nn.functional.pad(mass, (0, 1))
        return cls(mass, operators.complete, Validity.perfect(mass))

    @classmethod
    def concatenate(cls, parts: Iterable[RandomSet]) -> RandomSet:
        """Concatenate batches over the same budget along the first dimension, or stack single samples."""
        parts = list(parts)
        if not parts:
            raise RandomSetError("nothing to concatenate", got="no random sets")
        first = parts[0]
        for part in parts:
            if part.budget != first.budget:
                raise BudgetError(
                    "cannot concatenate random sets over different budgets",
                    got=repr(part.budget),
                    expected=repr(first.budget),
                )
            if part.shape[1:] != first.shape[1:] or len(part.shape) != len(first.shape):
                raise ShapeError(
                    "cannot concatenate batches of different shapes",
                    got=f"{tuple(part.shape)} and {tuple(first.shape)}",
                )
        join = torch.cat if first.shape else torch.stack
        mass = join([part.mass for part in parts])
        discounted = any(part.is_discounted for part in parts)
        reliability = join([part.reliability for part in parts]) if discounted else None
        validity = Validity.joined([part.validity for part in parts], join)
        known = [part._disagreement for part in parts if part._disagreement is not None]
        disagreement = join(known) if len(known) == len(parts) else None
        return cls(mass, first._family, validity, reliability, first._familiar_from, disagreement)

    # -- fusion ---------------------------------------------------------------------------------

    def combine(self, *others: RandomSet, rule: Rule = "dempster") -> RandomSet:
        """Fuse with the random sets of other models or sensors, sample by sample.

        "mean" is for dependent sources, such as the members of an ensemble; the reliability of the result is
        the mean of theirs. The functions in `fusion` also return the conflict, and include the unnormalised
        conjunctive rule.
        """
        for other in others:
            if not isinstance(other, RandomSet):
                raise RandomSetError(
                    "only random sets can be combined",
                    got=type(other).__name__,
                    remedy='Pass the rule by name: first.combine(second, rule="yager")',
                )
        if rule not in get_args(Rule):
            raise RandomSetError("unknown rule", got=rule, expected=f"one of {', '.join(get_args(Rule))}")
        sources, fuse = (self, *others), getattr(fusion, rule)
        fused = fuse([source.mass for source in sources], [source.budget for source in sources])
        validity = Validity.worst([source.validity for source in sources])
        family = self._family if fused.budget == self.budget else fused.budget
        if rule != "mean" or not any(source.is_discounted for source in sources):
            return RandomSet(fused.mass, family, validity)
        reliability = _mean([source.reliability for source in sources])
        limit = _mean([torch.as_tensor(source._familiar_from) for source in sources])
        return RandomSet(fused.mass, family, validity, reliability, limit)

    def discount(self, reliability: float | Tensor, familiar_from: float | Tensor | None = None) -> RandomSet:
        """Discount by a reliability r: m'(A) = r m(A), and Θ gets the rest.

        The ranking of the classes does not change: BetP' = r BetP + (1 − r) / N. An input is called familiar
        if its reliability is at least `familiar_from`.
        """
        mass = fusion.discount(self.mass, self._family, reliability)
        factor = torch.as_tensor(reliability, dtype=mass.dtype, device=mass.device)
        total = factor if self._reliability is None else self._reliability * factor
        limit = self._familiar_from if familiar_from is None else familiar_from
        return self.with_mass(mass, total.expand(mass.shape[:-1]), limit)

    def widen(self, share: float | Tensor) -> RandomSet:
        """Replace a share of each belief function by the least committed one with the same BetP.

        m' = (1 − κ) m + κ m*, with m* from `least_committed_mass`: the intervals become wider, while BetP and
        its entropy stay the same. The usual losses lead to nearly additive belief functions, whose intervals
        hardly reflect how few samples they were learned from.

        >>> answer = RandomSet.from_mass(torch.tensor([0.6, 0.3, 0.1, 0.0]), Budget.from_sets([{0, 1}], 3))
        >>> wide = answer.widen(0.5)
        >>> wide.lower, wide.upper
        (tensor([0.4500, 0.1500, 0.0500]), tensor([0.8000, 0.5000, 0.2000]))
        >>> wide.pignistic
        tensor([0.6000, 0.3000, 0.1000])
        """
        weight = torch.as_tensor(share, dtype=self.mass.dtype, device=self.mass.device).unsqueeze(-1)
        least = transforms.least_committed_mass(self.pignistic, self._family)
        return self.with_mass(torch.lerp(self.mass, least, weight), self._reliability)

    def weaken(self, share: Tensor, reliability: Tensor, familiar_from: float | Tensor) -> RandomSet:
        """Widen by a share, then discount by a reliability, both in [0, 1] and not checked.

        For speed, BetP' = r BetP + (1 − r) / N is computed from the pignistic probability of this random set.
        """
        pignistic = self.pignistic
        least = transforms.least_committed_mass(pignistic, self._family)
        total = reliability = reliability.to(pignistic.dtype)
        if self._reliability is not None:
            total = self._reliability * reliability
        factor = reliability.unsqueeze(-1)
        rest = ONE - factor
        mass = torch.lerp(self.mass, least, share.to(least.dtype).unsqueeze(-1)) * factor
        mass[..., -1:].add_(rest)
        answer = RandomSet(mass, self._family, self._validity, total, familiar_from, self._disagreement)
        # The order of the classes stays.
        discounted = torch.add(pignistic * factor, rest, alpha=1 / pignistic.shape[-1])
        answer.__dict__.update(pignistic=discounted, labels=self.labels)
        return answer

    def with_mass(
        self, mass: Tensor, reliability: Tensor | None = None, familiar_from: float | Tensor | None = None
    ) -> RandomSet:
        """Return a random set with other valid masses over the same budget and the same validity."""
        batch = mass.shape[:-1]
        same = batch == self.shape
        validity = self._validity if same else self.validity.map(lambda part: part.expand(batch))
        limit = self._familiar_from if familiar_from is None else familiar_from
        disagreement = self._disagreement
        if disagreement is not None and not same:
            disagreement = disagreement.expand(batch)
        return RandomSet(mass, self._family, validity, reliability, limit, disagreement)

    @property
    def disagreement(self) -> Tensor | None:
        """The mutual information (…) of the members of an ensemble, in bits; None for a single network."""
        return self._disagreement

    @property
    def is_discounted(self) -> bool:
        """Whether the masses were discounted by a reliability."""
        return self._reliability is not None

    @property
    def reliability(self) -> Tensor:
        """The reliability r (…) by which the masses were discounted; 1 if they were not."""
        return self.mass.new_ones(self.shape) if self._reliability is None else self._reliability

    @property
    def familiar_from(self) -> float:
        """The smallest reliability at which an input is called familiar, from known validation inputs."""
        return float(self._familiar_from)

    @property
    def familiar(self) -> Tensor:
        """Whether each input resembles the training data (…), according to its reliability."""
        return self.reliability >= self._familiar_from

    # -- the batch ------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """The shape of the batch; () for a single sample."""
        return self.mass.shape[:-1]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a single random set has no length")
        return self.shape[0]

    def __getitem__(self, index: Any) -> RandomSet:
        """Select samples with an integer, slice, mask or index tensor."""
        if isinstance(index, (int, slice)) and self.shape:
            return self._selected(self.mass[index], lambda part: part[index])
        # Index the sample numbers, not the masses, so that an index cannot reach the set dimension.
        count = self.shape.numel()
        samples = torch.arange(count, device=self.mass.device).reshape(self.shape)[index]
        mass = self.mass.reshape(count, len(self.budget))[samples]
        return self._selected(mass, lambda part: part.reshape(count)[samples])

    def _selected(self, mass: Tensor, select: Callable[[Tensor], Tensor]) -> RandomSet:
        """Return a random set with these masses, and the same selection of all else per sample."""
        reliability = None if self._reliability is None else select(self._reliability)
        disagreement = None if self._disagreement is None else select(self._disagreement)
        parts = self.validity.map(select), reliability, self._familiar_from, disagreement
        return RandomSet(mass, self._family, *parts)

    def __iter__(self) -> Iterator[RandomSet]:
        return (self[i] for i in range(len(self)))

    def to(self, *args: Any, **kwargs: Any) -> RandomSet:
        """Move to a device or convert to a floating dtype, like `torch.Tensor.to`."""
        mass = self.mass.to(*args, **kwargs)
        if mass is self.mass:
            same = RandomSet.__new__(RandomSet)  # with what has been computed already
            # The budget instead of the network's operators, which move with the network.
            same.__dict__.update(self.__dict__, _family=self.budget, _familiar_from=self.familiar_from)
            return same
        if not mass.is_floating_point():
            raise RandomSetError("masses need a floating dtype", got=str(mass.dtype))
        reliability = None if self._reliability is None else self._reliability.to(mass)
        disagreement = None if self._disagreement is None else self._disagreement.to(mass)
        validity = self.validity.map(lambda part: part.to(mass.device))
        return RandomSet(mass, self.budget, validity, reliability, self.familiar_from, disagreement)

    def numpy(self) -> dict[str, numpy.ndarray]:
        """Return the main properties as NumPy arrays by name; on the CPU they share memory."""
        per_sample = ["labels", "confidence", "credal_width", "entropy", "nonspecificity"]
        names = [*per_sample, "pignistic", "lower", "upper", "mass", "belief"]
        names += ["reliability"] if self.is_discounted else []
        names += [] if self._disagreement is None else ["disagreement"]
        arrays = {name: getattr(self, name).detach().cpu() for name in names}
        return {name: (x.float() if x.dtype == torch.bfloat16 else x).numpy() for name, x in arrays.items()}

    @property
    def label_names(self) -> list[str]:
        """The names of the predicted classes, over the flattened batch."""
        return self.names(self.labels)

    def to_frame(self, *, probabilities: bool = False) -> pandas.DataFrame:
        """Return a pandas DataFrame with one row per sample; `probabilities` adds BetP of every class."""
        with optional_package("pandas", "frames"):
            import pandas
        return pandas.DataFrame(text.columns(self, probabilities=probabilities))

    def explain(self, index: int | None = None, *, top: int = 3) -> str:
        """Describe the belief function of one sample in words."""
        return text.explanation(self if index is None else self[index], top)

    def __repr__(self) -> str:
        return text.summary(self)

    def _repr_html_(self) -> str:
        return text.html(self)

    # -- files ----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write to one safetensors file, with the budget as JSON in its header."""
        return storage.save(self, Path(path).expanduser())

    @classmethod
    def load(cls, path: str | Path) -> RandomSet:
        """Read a file written by `save`; nothing in it is executed."""
        return cls(*storage.load(Path(path).expanduser()))


def _mean(values: list[Tensor]) -> Tensor:
    return torch.stack(torch.broadcast_tensors(*values)).mean(0)
