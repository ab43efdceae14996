"""What a user's code sees of our types: checked by `mypy --strict` beside the installed package."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import assert_type

import randomset as rs
from randomset import backbones
from randomset.evaluation import Evaluation, evaluate
from randomset.evaluation.conformal import Conformal, ConformalResult


def predicted(network: rs.RandomSetNetwork, images: Tensor) -> rs.RandomSet:
    answer = network.predict(images)
    assert_type(answer, rs.RandomSet)
    assert_type(answer.pignistic, Tensor)
    assert_type(answer.entropy, Tensor)
    assert_type(answer.label_names, list[str])
    assert_type(answer.explain(0), str)
    assert_type(answer.reject(0.5), Tensor)
    assert_type(answer.budget, rs.Budget)
    return answer


def chosen(features: Tensor, labels: Tensor) -> rs.Budget:
    budget = rs.Budgeter(num_sets=3).fit(features, labels).budget_
    assert_type(budget, rs.Budget)
    assert_type(len(budget), int)
    assert_type(budget.classes, tuple[str, ...])
    return budget


def measured(network: rs.RandomSetNetwork, images: Tensor, labels: Tensor) -> Evaluation:
    result = evaluate(network, (images, labels))
    assert_type(result, Evaluation)
    assert_type(result.summary, str)
    return result


def covered(sets: Tensor, labels: Tensor) -> float:
    found = Conformal.measure(sets, labels)
    assert_type(found, ConformalResult)
    return found.coverage


def main() -> None:
    budget = chosen(torch.randn(90, 4) + 4 * (torch.arange(90) % 3)[:, None], torch.arange(90) % 3)
    network = rs.RandomSetNetwork(backbones.mlp(4, (16,)), budget)
    loss: nn.Module = rs.RandomSetLoss(budget)
    optimiser = torch.optim.Adam(network.parameters())
    loss(network(torch.randn(8, 4)), torch.arange(8) % 3).backward()
    optimiser.step()
    answer = predicted(network, torch.randn(5, 4))
    print(answer.explain(0))
    print(rs.RandomSet.from_mass(answer.mass, answer.budget).credal_width)
    print(measured(network, torch.randn(30, 4), torch.arange(30) % 3).summary)
    print(covered(torch.ones(3, 3, dtype=torch.bool), torch.arange(3)))


if __name__ == "__main__":
    main()
