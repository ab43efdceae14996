"""The methods of `benchmarks.libraries`, one function each, as a user of each library would write them.

A method takes an `Experiment`, trains its networks, and returns a function from images to probabilities and
uncertainty scores (higher is more uncertain). Its first score is the library's preferred one.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.libraries_training import MEMBERS, Experiment
from randomset import Budgeter, RandomSetLoss, RandomSetNetwork, calibrate
from randomset.models.head import fit_head
from randomset.training.config import TrainConfig

Predict = Callable[[Tensor], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class Trained:
    """A trained method, and its training time."""

    predict: Predict
    seconds: float


def random_set(experiment: Experiment) -> Trained:
    """RS-NN of `randomset`, as `randomset train` does it: plain first, then with sets, then a reliability."""
    plan, start, task = experiment.plan, time.process_time(), experiment.task
    plain, config, (first, rest) = experiment.network(), TrainConfig(), plan.halves()
    experiment.train(plain, plan=first)
    with torch.no_grad():
        features = plain[0](task.train[0])
    budget = Budgeter(num_sets=config.num_sets, progress=False).fit(features, task.train[1]).budget_
    network, loss = RandomSetNetwork(plain[0], budget), RandomSetLoss(budget, gamma=config.likelihood_weight)
    fit_head(network.head, features, task.train[1], loss, seed=experiment.seed)
    rest = rest.within((plan.seconds or 0) - (time.process_time() - start))
    recipe = config.phases(len(features))[1]
    experiment.train(network, lambda outputs, labels, share: loss(outputs, labels), rest, recipe)
    calibrate(network, TensorDataset(*task.validation), progress=False)
    network.fit_reliability(task.train, task.validation, progress=False)
    return Trained(_scored(network), time.process_time() - start)


def random_set_from_scratch(experiment: Experiment) -> Trained:
    """RS-NN of the paper: a plain network chooses the sets, then another one is trained; no reliability."""
    plan, start, task = experiment.plan, time.process_time(), experiment.task
    plain = experiment.network()
    experiment.train(plain, plan=plan.within((plan.seconds or 0) / 2))
    with torch.no_grad():
        features = plain[0](task.train[0])
    budget = Budgeter(num_sets=20, progress=False).fit(features, task.train[1]).budget_
    network, loss = RandomSetNetwork(experiment.network()[0], budget), RandomSetLoss(budget)
    rest = plan.within((plan.seconds or 0) - (time.process_time() - start))
    experiment.train(network, lambda outputs, labels, share: loss(outputs, labels), rest)
    calibrate(network, TensorDataset(*task.validation), progress=False)
    return Trained(_scored(network), time.process_time() - start)


def _scored(network: RandomSetNetwork) -> Predict:
    def predict(images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        answer = network.predict(images, progress=False)
        wanted = ("entropy", "credal width", "non-specificity", "1 - reliability")
        return answer.pignistic, {name: answer.scores[name] for name in wanted if name in answer.scores}

    return predict


def softmax(experiment: Experiment) -> Trained:
    """The softmax network."""
    network, seconds = experiment.softmax

    def predict(images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        p = network(images).softmax(1)
        return p, {"1 - maximum": 1 - p.amax(1), "entropy": torch.special.entr(p).sum(1)}

    return Trained(predict, seconds)


@lru_cache(maxsize=1)
def five_networks(experiment: Experiment) -> tuple[Any, float]:
    """Train the members of a deep ensemble together, from different initial weights."""
    from torch_uncertainty.methods import deep_ensembles

    ensemble = deep_ensembles(experiment.network(), num_estimators=MEMBERS)
    return ensemble, experiment.train(ensemble)


def averaged(model: nn.Module) -> Predict:
    """Average the members of a TorchUncertainty model, and apply its criteria."""
    from torch_uncertainty.ood_criteria import MutualInformationCriterion

    disagreement = MutualInformationCriterion()

    def predict(images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        each = model(images).softmax(1).unflatten(0, (-1, len(images))).transpose(0, 1)
        p = each.mean(1)
        scores = {
            "1 - maximum": 1 - p.amax(1),
            "entropy": torch.special.entr(p).sum(1),
            "mutual information": disagreement(each),
        }
        return p, scores

    return predict


def deep_ensemble(experiment: Experiment) -> Trained:
    """TorchUncertainty: five networks."""
    ensemble, seconds = five_networks(experiment)
    return Trained(averaged(ensemble), seconds)


def packed_ensemble(experiment: Experiment) -> Trained:
    """TorchUncertainty: four small networks inside layers that are twice as wide."""
    from torch_uncertainty.layers import PackedConv2d, PackedLinear

    torch.manual_seed(experiment.seed)
    packing: dict[str, Any] = {"alpha": 2, "num_estimators": 4}
    network = nn.Sequential(
        *(PackedConv2d(1, 32, 3, padding=1, first=True, **packing), nn.MaxPool2d(2), nn.ReLU()),
        *(PackedConv2d(32, 64, 3, padding=1, **packing), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
        *(PackedLinear(64 * (experiment.task.image_size // 4) ** 2, 128, **packing), nn.ReLU()),
        PackedLinear(128, experiment.task.classes, last=True, **packing),
    ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as the backbone is
    return Trained(averaged(network), experiment.train(network))


def dropout(experiment: Experiment) -> Trained:
    """TorchUncertainty: Monte Carlo dropout with 16 forward passes."""
    from torch_uncertainty.methods import mc_dropout

    network = mc_dropout(experiment.network(dropout=0.2), num_estimators=16)
    return Trained(averaged(network), experiment.train(network))


def laplace(experiment: Experiment) -> Trained:
    """laplace-torch: a Gaussian posterior of the last layer, its prior tuned on validation data."""
    from laplace import Laplace

    network, seconds = experiment.softmax
    start = time.process_time()
    # It flattens weights with views, which need contiguous memory.
    plain = copy.deepcopy(network).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    posterior = Laplace(plain, "classification", subset_of_weights="last_layer", hessian_structure="kron")
    posterior.fit(DataLoader(TensorDataset(*experiment.task.train), 128))
    held = DataLoader(TensorDataset(*experiment.task.validation), 500)
    posterior.optimize_prior_precision(method="gridsearch", link_approx="probit", val_loader=held)

    def predict(images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        p = posterior(images, link_approx="probit")
        return p, {"entropy": torch.special.entr(p).sum(1), "1 - maximum": 1 - p.amax(1)}

    return Trained(predict, seconds + time.process_time() - start)


def detector(name: str) -> Callable[[Experiment], Trained]:
    """Return the method that scores features or logits of the softmax network with a detector."""

    def method(experiment: Experiment) -> Trained:
        from pytorch_ood import detector as library

        (backbone, layer), seconds = experiment.softmax
        start = time.process_time()
        if name == "ViM":
            found = library.ViM(backbone, 64, layer.weight, layer.bias)
        else:
            found = getattr(library, name)(backbone)
        logits = isinstance(found, library.EnergyBased)
        if not logits:
            with torch.no_grad():
                found.fit_features(backbone(experiment.task.train[0]), experiment.task.train[1])

        def predict(images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            features = backbone(images)
            outputs = layer(features)
            score = found.predict_logits(outputs) if logits else found.predict_features(features)
            return outputs.softmax(1), {name: score}

        return Trained(predict, seconds + time.process_time() - start)

    return method


def evidential(experiment: Experiment) -> Trained:
    """probly: outputs as evidence for a Dirichlet; evidence for wrong classes costs ever more."""
    from probly.losses import EvidentialKLDivergence, EvidentialLogLoss
    from probly.quantification.classification import evidential_uncertainty
    from probly.representation.classification import Evidential

    network, loss, wrong = Evidential(experiment.network()), EvidentialLogLoss(), EvidentialKLDivergence()

    def annealed(outputs: Tensor, labels: Tensor, share: float) -> Tensor:
        return loss(outputs, labels) + share * wrong(outputs, labels)

    seconds = experiment.train(network, annealed)

    def predict(images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        evidence = network.predict_representation(images)
        p = (evidence + 1) / (evidence + 1).sum(1, keepdim=True)
        scores = {
            "vacuity": torch.from_numpy(evidential_uncertainty(evidence.numpy())),
            "entropy": torch.special.entr(p).sum(1),
        }
        return p, scores

    return Trained(predict, seconds)


def credal_ensemble(experiment: Experiment) -> Trained:
    """probly: the credal set between the lowest and highest probabilities of the same five networks.

    Its entropies need two numerical optimisations per image.
    """
    from probly.quantification.classification import lower_entropy, upper_entropy
    from probly.representation.classification.credalensembling import CredalEnsembling

    members, seconds = five_networks(experiment)
    ensemble = CredalEnsembling(experiment.network(), MEMBERS).eval()
    ensemble.models.load_state_dict(members.core_models.state_dict())

    def predict(images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        each = ensemble.predict_representation(images)
        upper = torch.from_numpy(upper_entropy(each.double().numpy()))
        lower = torch.from_numpy(lower_entropy(each.double().numpy()))
        return each.mean(1), {"upper - lower entropy": upper - lower, "upper entropy": upper}

    return Trained(predict, seconds)


def mass_head(experiment: Experiment, focal: str | None = None) -> Trained:
    """torchbelief: a softmax over singletons and Θ, or other sets, trained by the likelihood of BetP."""
    import torchbelief as library

    network, frame = experiment.network(), library.Frame(experiment.task.classes)
    network[1] = library.MassHead(network[0].num_features, frame, focal)
    seconds = experiment.train(network, lambda mass, y, share: library.pignistic_nll(mass, y, frame))

    def predict(images: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        mass = network(images)
        scores = {
            "entropy": library.pignistic_entropy(mass, frame),
            "non-specificity": library.nonspecificity(mass, frame),
            "mass on Θ": mass[:, -1],
        }
        return library.pignistic(mass, frame), scores

    return Trained(predict, seconds)


def every_mass_head(experiment: Experiment) -> Trained:
    """torchbelief: a softmax over every set of classes."""
    return mass_head(experiment, "all")


METHODS: dict[str, Callable[[Experiment], Trained]] = {
    "randomset: RS-NN": random_set,
    "randomset: RS-NN, from scratch": random_set_from_scratch,
    "torch: softmax": softmax,
    "TorchUncertainty: deep ensemble": deep_ensemble,
    "TorchUncertainty: packed ensemble": packed_ensemble,
    "TorchUncertainty: MC dropout": dropout,
    "laplace-torch: last layer": laplace,
    "pytorch-ood: energy": detector("EnergyBased"),
    "pytorch-ood: Mahalanobis": detector("Mahalanobis"),
    "pytorch-ood: relative Mahalanobis": detector("RMD"),
    "pytorch-ood: ViM": detector("ViM"),
    "pytorch-ood: k nearest": detector("KNN"),
    "probly: evidential": evidential,
    "probly: credal ensemble": credal_ensemble,
    "torchbelief: mass head": mass_head,
    "torchbelief: mass head, all sets": every_mass_head,
}
