"""The comparison with other libraries, tested without them."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from benchmarks import libraries, libraries_belief
from benchmarks.libraries_methods import METHODS, Trained, softmax
from benchmarks.libraries_training import Experiment, Plan, Task, cross_entropy, digits, one_cycle, train
from randomset import Budget


class Clock:
    """A clock that advances by a quarter of a second per call."""

    def __init__(self):
        self.time = -0.25

    def __call__(self):
        self.time += 0.25
        return self.time


def counting(counted):
    def loss(outputs, labels, share):
        counted.append(share)
        return cross_entropy(outputs, labels)

    return loss


@pytest.fixture
def blobs():
    labels = torch.arange(300) % 2
    return torch.randn(300, 3, generator=torch.Generator().manual_seed(0)) + 4 * labels[:, None], labels


def test_training_stops_after_its_seconds(blobs):
    images, labels = blobs
    shares: list[float] = []
    spent = train(nn.Linear(3, 2), counting(shares), images, labels, Plan(seconds=2.0), clock=Clock())
    # The clock shows 0 at the start and a quarter more at each step: seven steps begin before 2 s are over.
    assert shares == [step / 8 for step in range(1, 8)]
    assert spent == 2.25


def test_training_stops_after_its_epochs(blobs):
    images, labels = blobs
    shares: list[float] = []
    model = nn.Linear(3, 2)
    before = cross_entropy(model(images), labels)
    train(model, counting(shares), images, labels, Plan(epochs=4), clock=Clock())
    assert shares == [step / 76 for step in range(76)]  # 300 samples are 19 batches of 16
    assert not model.training
    assert cross_entropy(model(images), labels) < before


def test_zero_seconds_leave_the_weights_unchanged(blobs):
    images, labels = blobs
    model = nn.Linear(3, 2)
    before = model.weight.clone()
    train(model, cross_entropy, images, labels, Plan(seconds=4.0).within(-1.0))
    assert torch.equal(model.weight, before)


def test_epochs_do_not_count_seconds():
    assert Plan(epochs=3).within(1.0) == Plan(epochs=3)
    assert max(one_cycle(step / 100) for step in range(100)) == one_cycle(0.25) == 1


def test_members_share_the_labels():
    outputs, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    twice = cross_entropy(torch.cat((outputs, outputs)), labels)
    assert twice == pytest.approx(nn.functional.cross_entropy(outputs, labels).item())


def worked_example():
    """Two classes; the input is (p of class 1, score). The last of four test inputs is wrong."""
    test = torch.tensor([[0.1, 0.1], [0.8, 0.2], [0.7, 0.4], [0.4, 0.3]]), torch.tensor([0, 1, 1, 1])
    unknown = {"odd": torch.tensor([[0.5, 0.35], [0.5, 0.9]])}

    def predict(inputs):
        p = inputs[:, 0]
        return torch.stack((1 - p, p), 1), {"own": inputs[:, 1]}

    return Trained(predict, seconds=1.0), Task(test, test, test, unknown, 2)


def test_numbers_of_the_worked_example():
    found = libraries.measured(*worked_example())
    assert found["accuracy"] == 0.75
    assert found["nll"] == pytest.approx(-torch.tensor([0.9, 0.8, 0.7, 0.4]).log().mean().item(), abs=1e-6)
    # 0.35 is above three of the four known scores, 0.9 above all: 7 of 8 pairs are in order.
    auroc, auprc = found["scores"]["own"]["odd"]
    assert auroc == 7 / 8
    # By falling score: unknown, known (0.4), unknown: precision 1 at recall 1/2, 2/3 at recall 1.
    assert auprc == pytest.approx((1 + 2 / 3) / 2)


def test_tables_have_means_and_spreads():
    model, task = worked_example()
    found = libraries.measured(model, task) | {"seconds": 1.0, "one": 1.0, "many": 1.0}
    other = found | {"accuracy": 0.65}
    assert "| torch: softmax | 70.00 ± 7.07 |" in libraries.qualities({"torch: softmax": [found, other]})
    row = "| torch: softmax | own | 87.50 ± 0.00 | 83.33 ± 0.00 |"
    assert row in libraries.detections({"torch: softmax": [found, other]})


def test_lines_count_helpers():
    assert libraries.lines(softmax) == 5
    ensemble = METHODS["TorchUncertainty: deep ensemble"]
    assert libraries.lines(ensemble) > 10  # its own two, and those of the helpers


@pytest.mark.slow
def test_methods_without_other_libraries_run(tmp_path):
    methods = ["randomset: RS-NN", "torch: softmax"]
    kept = tmp_path / "kept.json"
    results = libraries.run("digits", Plan(epochs=3), 1, methods, 2, kept)
    assert results["torch: softmax"][0]["accuracy"] > 0.5
    scores = {"entropy", "credal width", "non-specificity", "1 - reliability"}
    assert set(results["randomset: RS-NN"][0]["scores"]) == scores
    again = libraries.run("digits", Plan(epochs=3), 1, methods, 2, kept)
    assert libraries.qualities(again) == libraries.qualities(results)  # from the file


def test_digits_hold_out_two_classes():
    task = digits(0)
    assert task.classes == int(task.train[1].max()) + 1 == 8
    assert len(task.unknown["8 and 9"]) == 354
    assert Experiment(task, Plan(), 0).network()(task.test[0][:2]).shape == (2, 8)


def test_sets_as_bit_masks():
    budget = Budget.from_sets([{0, 2}, {0, 1, 2}], 3)
    assert libraries_belief.codes(budget).tolist() == [1, 2, 4, 5, 7]
    spread = libraries_belief.dense(torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.0]]), budget)
    assert spread.tolist()[0] == pytest.approx([0, 0.1, 0.2, 0, 0.3, 0.4, 0, 0])


def test_results_that_differ_are_not_timed():
    budget = Budget.powerset(3)
    one, two = (libraries_belief.random_masses(4, budget, seed) for seed in (0, 1))
    base = libraries_belief.ours(one, two, budget)["belief"]
    same = libraries_belief.Single(lambda i: base()[i], lambda found: found)
    assert libraries_belief.compared(base, same, 4, 0.01) > 0
    wrong = libraries_belief.Batched(lambda: base() + 1e-5)
    with pytest.raises(AssertionError, match="tolerance"):
        libraries_belief.compared(base, wrong, 4, 0.01)


@pytest.mark.slow
def test_other_libraries_are_imported_lazily():
    code = "import sys, benchmarks.libraries, benchmarks.libraries_belief; print(*sys.modules)"
    seen = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"laplace", "probly", "pyds", "pytorch_ood", "torch_uncertainty", "torchbelief"} & set(seen)
