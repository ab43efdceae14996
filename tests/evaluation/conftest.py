"""Data of every kind, models of them, and the result of a whole evaluation."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from randomset import Budget, RandomSetNetwork, backbones
from randomset.backbones.inputs import Standardise
from randomset.data import Source, load_source
from randomset.evaluation import evaluate


def points(samples=120, shift=0.0, seed=0):
    """Three clouds in the plane, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % 3
    centres = torch.tensor([[0.0, 3.0], [3.0, -2.0], [-3.0, -2.0]])
    return centres[labels] + torch.randn(samples, 2, generator=generator) + shift, labels


def model(inputs):
    """Softmax of the distances to the centres."""
    centres = torch.tensor([[0.0, 3.0], [3.0, -2.0], [-3.0, -2.0]])
    return (-(torch.cdist(inputs.float(), centres) ** 2) / 2).softmax(1)


def network(classes="abc", seed=0):
    """A random-set network that has learned nothing."""
    torch.manual_seed(seed)
    budget = Budget.from_sets([set(classes[:2])], list(classes))
    found = RandomSetNetwork(backbones.mlp(2, (8,)), budget)
    nn.init.normal_(found.head.layers[-1].weight, std=2.0)
    return found.eval()


def image_network(channels=1, size=8):
    torch.manual_seed(0)
    backbone, budget = backbones.small_cnn(channels, size, width=16), Budget.from_sets([{0, 1}], 10)
    found = RandomSetNetwork(backbone, budget, preprocess=Standardise(0.3, 0.4))
    nn.init.normal_(found.head.layers[-1].weight, std=2.0)
    return found.eval()


def assert_alike(found, expected):
    """Numbers that differ by the rounding of other batches."""
    assert found["samples"] == expected["samples"]
    for name in ("accuracy", "nll", "brier", "ece", "confidence"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4), name


TEST, UNKNOWN = points(), torch.randn(50, 2, generator=torch.Generator().manual_seed(9)) * 3


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(*TEST, strict=True)


class Points(Dataset):
    def __len__(self):
        return len(TEST[0])

    def __getitem__(self, place):
        return TEST[0][place], int(TEST[1][place])


KINDS = {
    "tensors": lambda: TEST,
    "arrays": lambda: (TEST[0].numpy(), TEST[1].numpy()),
    "tensor data set": lambda: TensorDataset(*TEST),
    "data set": Points,
    "stream": Stream,
    "loader of a stream": lambda: DataLoader(Stream(), batch_size=7),
    "loader": lambda: DataLoader(TensorDataset(*TEST), batch_size=50),
    "batches": lambda: list(zip(TEST[0].split(50), TEST[1].split(50), strict=True)),
    "source": lambda: Source("points", "features", *TEST, ("0", "1", "2")),
}


def draw(samples=500, classes=6, seed=0):
    """Overconfident probabilities, and labels drawn from the right ones."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, generator=generator, dtype=torch.double)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return (1.5 * logits).softmax(1), labels


@pytest.fixture(scope="session")
def result():
    """An evaluation of everything, which takes seconds."""
    return evaluate(
        image_network(),
        load_source("digits").part(torch.arange(300, 1797)),
        {"noise | strange/name": torch.rand(40, 1, 8, 8)},
        validation=load_source("digits").part(torch.arange(300)),
        noise=(0.3,),
        rotation=((-30, 30),),
        attacks=(0.0, 0.05),
        samples=20,
        timing=True,
    )


# A linear model of twelve pixels, on which the best attack is known.
_GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(12, generator=_GENERATOR)
PIXELS = 0.3 + 0.4 * torch.rand(300, 12, generator=_GENERATOR)  # so that no pixel reaches its limits
SIDES = ((PIXELS @ WEIGHT).median() < PIXELS @ WEIGHT).long()


def linear(x):
    score = (x @ WEIGHT - (PIXELS @ WEIGHT).median()).to(x)
    return torch.stack((-score, score), 1)
