import pytest

from reproduction import exhibit
from reproduction.scales import METHODS
from tests.reproduction.commands import percent, rounded, uses_tiny_results, value

SHOWN = ("softmax", "rsnn", "laplace-bridge", "epinet")


def attacked(own, combined):
    model = {"PGD, own loss clipped": {"0.05": [own]}, "all of them": {"0.05": [combined]}}
    return {"rsnn": model, "softmax": {"all of them": {"0.05": [0.2]}}}


def test_attack_verdict():
    verdict = exhibit("table-14").verdict
    masked = verdict({"mnist": attacked(0.9, 0.3), "cifar10": attacked(0.1, 0.1)})
    assert "on mnist, RS-NN keeps an accuracy of 90.0 % under the paper's PGD and 30.0 % under" in masked
    assert "(CNN: 20.0 %)" in masked
    assert "The paper's attack fails where the loss of a confident network is flat" in masked
    plain = verdict({"mnist": attacked(0.33, 0.3), "cifar10": attacked(0.1, 0.1)})  # within 5 points
    assert "The paper's robustness is not reproduced" in plain


def test_confidence_verdict():
    def confident(rsnn, softmax):
        return {"rsnn": {"0.05": {"wrong": [rsnn]}}, "softmax": {"0.05": {"wrong": [softmax]}}}

    verdict = exhibit("figure-2").verdict
    assert verdict(confident(0.5, 0.9)).endswith(
        "is 0.50 for RS-NN and 0.90 for CNN, which confirms the paper."
    )
    assert verdict(confident(0.9, 0.5)).endswith("which contradicts the paper.")


class TestTiny:
    pytestmark = uses_tiny_results

    @pytest.mark.parametrize(("id", "name"), [("table-13", "FGSM"), ("table-14", "PGD")])
    def test_attack_tables(self, made, id, name):
        numbers = made.numbers(id)
        for data, (_, *rows) in zip(("mnist", "cifar10"), made.tables(id), strict=True):
            cells = {(row[0], row[1]): row[2:] for row in rows}
            for method in SHOWN:
                attacks = numbers[data][method]
                shown = [attack for attack in attacks if attack.startswith(name)] + ["all of them"]
                assert len(shown) > 1
                for attack in shown:
                    clean, accuracy = cells.pop((METHODS[method], attack))
                    assert value(clean) == percent(attacks["none"]["0"][0])
                    assert value(accuracy) == percent(attacks[attack]["0.05"][0])
            assert not cells

    def test_all_attacks_combined_are_at_least_as_strong_as_each(self, made):
        numbers = made.numbers("table-13")
        assert numbers["samples"] == 20
        for data in ("mnist", "cifar10"):
            for attacks in numbers[data].values():
                (combined,) = attacks["all of them"]["0.05"]
                accuracies = [levels["0.05"][0] for levels in attacks.values() if "0.05" in levels]
                assert 0 <= combined == min(combined, *accuracies)
                assert combined <= attacks["none"]["0"][0]

    def test_confidence_table(self, made):
        numbers = made.numbers("figure-2")
        _, *rows = made.tables("figure-2")[0]
        cells = {(row[0], row[1]): row[2:] for row in rows}
        for method, levels in numbers.items():
            for epsilon, values in levels.items():
                right, wrong = values["right"], values["wrong"]
                assert values["accuracy"] == rounded(len(right) / (len(right) + len(wrong)), 5)
                assert all(0 <= confidence <= 1 for confidence in (*right, *wrong))
                accuracy, *means = cells[METHODS[method], epsilon]
                assert value(accuracy) == percent(values["accuracy"])
                for cell, confidences in zip(means, (right, wrong), strict=True):
                    assert (
                        cell == "–"
                        if not confidences
                        else value(cell) == rounded(sum(confidences) / len(confidences))
                    )

    def test_example_stays_within_epsilon(self, made):
        numbers = made.numbers("figure-17")
        images = {
            float(epsilon): [pixel for line in row["image"] for pixel in line]
            for epsilon, row in numbers.items()
        }
        smallest, *others = sorted(images)
        for epsilon in others:
            pairs = zip(images[smallest], images[epsilon], strict=True)
            changes = [abs(first - second) for first, second in pairs]
            assert 0 < max(changes) <= smallest + epsilon + 2e-3  # images are rounded
