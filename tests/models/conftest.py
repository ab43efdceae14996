"""A small random-set network; three clouds in the plane, and a model of every method."""

import torch

from randomset import Budget, RandomSetNetwork, backbones
from randomset.models import (
    FSVI,
    Ensemble,
    Epinet,
    Evidential,
    LaplaceBridge,
    MCDropout,
    RandomSetEnsemble,
    Softmax,
    WrappedClassifier,
)


def data(samples=90, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % 3
    centres = torch.tensor([[0.0, 3.0], [3.0, -2.0], [-3.0, -2.0]])
    return centres[labels] + torch.randn(samples, 2, generator=generator), labels


X, Y = data()


def body(seed=0):
    torch.manual_seed(seed)
    return backbones.mlp(2, (16,))


def laplace(structure, samples=0):
    torch.manual_seed(1)
    model = LaplaceBridge(Softmax(body(), 3).eval(), structure, samples)
    model.fit_posterior([(X, Y)])
    return model


def wrapped():
    model = WrappedClassifier.from_classifier(Softmax(body(), 3))
    model.calibrate((X, Y))
    model.fit_reliability((X, Y), (X, Y))
    return model


def random_set_member(seed):
    torch.manual_seed(seed)
    member = RandomSetNetwork(body(seed), Budget.from_sets([{0, 1}, {1, 2}], 3))
    member.calibrate((X, Y))
    member.fit_reliability((X, Y), (X, Y))
    return member


def random_sets(combination="mean"):
    model = RandomSetEnsemble([random_set_member(seed) for seed in range(3)], combination)
    model.calibrate((X, Y))
    return model


MAKERS = {
    "softmax": lambda: Softmax(body(), 3),
    "mc-dropout": lambda: MCDropout(body(), 3),
    "evidential": lambda: Evidential(body(), 3),
    "ensemble": lambda: Ensemble([Softmax(body(seed), 3) for seed in range(3)]),
    "epinet": lambda: Epinet(body(), 3),
    "fsvi": lambda: FSVI(body(), 3, num_train=90),
    "laplace-bridge": lambda: laplace("kron"),
    "laplace-bridge full": lambda: laplace("full"),
    "laplace-bridge sampled": lambda: laplace("kron", 15),
    "random-set-ensemble": random_sets,
    "random-set-ensemble dempster": lambda: random_sets("dempster"),
    "wrapped": wrapped,
}


def make(name):
    torch.manual_seed(5)
    return MAKERS[name]()


BUDGET = Budget.from_sets([{"cat", "dog"}, {"dog", "car"}], ["cat", "dog", "car"])


def network(**options):
    torch.manual_seed(0)
    return RandomSetNetwork(backbones.mlp(4, (8,), dropout=0.5), BUDGET, **options)


FEATURES = torch.randn(10, 4, generator=torch.Generator().manual_seed(1))


IMAGES = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(2))
