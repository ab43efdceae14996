import pytest

from reproduction import exhibit
from reproduction.scales import METHODS
from tests.reproduction.commands import percent, rounded, uses_tiny_results, value

SHOWN = ("softmax", "rsnn", "laplace-bridge", "epinet")


def test_level_verdict_leaves_clean_images_out():
    def levels(*accuracies):
        return [{"accuracy": [accuracy]} for accuracy in accuracies]

    numbers = {method: levels(0.9, 0.5, 0.5) for method in SHOWN} | {"rsnn": levels(0.99, 0.6, 0.4)}
    assert exhibit("table-11").verdict(numbers).startswith("RS-NN is the most accurate at 1 of 2 levels;")


def test_confidence_verdict():
    def wrong(**confidences):
        return {kind: {"wrong": {"confidence": each}} for kind, each in confidences.items()}

    verdict = exhibit("figure-14").verdict
    numbers = {"rsnn": wrong(noise=0.5, turned=0.9), "softmax": wrong(noise=0.7, turned=0.7)}
    assert verdict(numbers).endswith("images: noisy.")
    numbers["rsnn"] = wrong(noise=0.8, turned=0.9)
    assert verdict(numbers).endswith("images: none.")
    numbers = {"rsnn": {"noise": {}}, "softmax": wrong(noise=0.7)}  # nothing is wrong
    assert verdict(numbers).endswith("images: none.")


def test_rotation_verdict():
    def entropies(inner, outer):
        return {"angles": [-60, 0, 30, 90], "methods": {"rsnn": {"entropy": [outer, inner, inner, outer]}}}

    verdict = exhibit("figure-20").verdict
    assert verdict(entropies(0.5, 1.5)) == (
        "RS-NN's entropy is 0.50 bits up to 30° and 1.50 beyond, which confirms the paper."
    )
    assert verdict(entropies(1.5, 0.5)).endswith("which contradicts the paper.")


class TestTiny:
    pytestmark = uses_tiny_results

    @pytest.mark.parametrize("id", ["table-11", "table-12"])
    def test_level_tables(self, made, id):
        numbers = made.numbers(id)
        (columns, *accuracies), (_, *entropies) = made.tables(id)
        assert columns[:2] == ["method", "none"]
        assert columns[2] == ("0.2" if id == "table-11" else "-180° to -120°")
        for method, accuracy, entropy in zip(SHOWN, accuracies, entropies, strict=True):
            assert accuracy[0] == entropy[0] == METHODS[method]
            rows = numbers[method]
            assert [value(cell) for cell in accuracy[1:]] == [percent(row["accuracy"][0]) for row in rows]
            assert [value(cell) for cell in entropy[1:]] == [rounded(row["entropy"][0]) for row in rows]
            assert "(" not in accuracy[1]  # the paper has no values for clean images
            assert all(cell.endswith(")") for cell in accuracy[2:])

    def test_clean_images_are_the_same_in_both_tables(self, made):
        for method in SHOWN:
            noise, rotation = (made.numbers(id)[method][0]["accuracy"] for id in ("table-11", "table-12"))
            assert noise == rotation

    def test_confidence_table(self, made):
        titles = {"as they are": "original", "noise": "noisy", "turned": "rotated"}
        numbers = made.numbers("figure-14")
        assert made.numbers("figure-15") == made.numbers("figure-16") == numbers
        _, *rows = made.tables("figure-14")[0]
        cells = {tuple(row[:3]): [value(cell) for cell in row[3:]] for row in rows}
        for method, kinds in numbers.items():
            for kind, predictions in kinds.items():
                assert sum(values["share"] for values in predictions.values()) == rounded(1.0, 5)
                for name, values in predictions.items():
                    title = "correct" if name == "right" else name
                    assert cells[METHODS[method], titles[kind], title] == [
                        rounded(100 * values["share"], 1),
                        rounded(values["confidence"]),
                        rounded(values["entropy"]),
                    ]

    def test_rotated_three(self, made):
        numbers, table = made.numbers("figure-20"), made.table("figure-20")
        shown = [numbers["angles"].index(angle) for angle in range(-90, 91, 30)]
        for method in SHOWN:
            values = numbers["methods"][method]
            for cell, i in zip(table[METHODS[method]], shown, strict=True):
                assert value(cell) == rounded(values["entropy"][i])
                assert cell.endswith(f"({values['answers'][i]})")
        upright = numbers["angles"].index(0)
        assert [numbers["methods"][method]["answers"][upright] for method in ("rsnn", "softmax")] == [3, 3]
