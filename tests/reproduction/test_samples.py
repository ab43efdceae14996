import math

import pytest

from reproduction import exhibit
from tests.reproduction.commands import rounded, uses_tiny_results, value


def test_sample_verdict_compares_both_networks():
    sample = {"pignistic": [["4", 0.35], ["9", 0.3]], "cnn": [["9", 0.53]], "entropy": 2.5}
    verdict = exhibit("table-9").verdict({"8 turned by 60°": sample})
    assert verdict.startswith(
        "8 rotated by 60°: CNN predicts 9 with probability 0.53, RS-NN predicts 4 with "
    )
    assert "with probability 0.35 and entropy 2.50 bits." in verdict


def test_worked_example():
    item = exhibit("figure-4")
    numbers = item.measure(None)  # type: ignore[arg-type]
    assert numbers["pignistic"] == pytest.approx([0.7, 0.2, 0.1])
    assert numbers["lower"] == pytest.approx([0.5, 0, 0.1])
    assert numbers["upper"] == pytest.approx([0.9, 0.4, 0.1])
    assert " match those of the paper" in item.verdict(numbers)
    assert " differ from those of the paper" in item.verdict({**numbers, "lower": [0.4, 0, 0.1]})


class TestTiny:
    pytestmark = uses_tiny_results

    @pytest.mark.parametrize(
        ("id", "titles"),
        [
            ("table-9", None),
            (
                "table-10",
                [*("2 with noise 0.5", "3 with noise 0.5"), *("1 rotated by 60°", "9 rotated by 60°")],
            ),
            ("table-15", ["most certain correct prediction", "most uncertain wrong prediction"]),
            ("figure-19", ["most certain correct prediction", "most uncertain wrong prediction"]),
        ],
    )
    def test_tables(self, made, id, titles):
        numbers, table = made.numbers(id), made.table(id)
        assert titles is None or list(table) == titles
        for sample, row in zip(numbers.values(), table.values(), strict=True):
            label, *tops, cnn_entropy, entropy, width = row
            assert label == sample["label"]
            for part, cell in zip(("cnn", "belief", "mass", "pignistic"), tops, strict=True):
                values = [share for _, share in sample[part]]
                assert values == sorted(values, reverse=True)
                assert all(0 <= share <= 1 for share in values)
                assert [float(entry.split()[-1]) for entry in cell.split("; ")] == [
                    rounded(share, 4) for share in values
                ]
            assert value(cnn_entropy) == rounded(sample["cnn entropy"], 4)
            assert value(entropy) == rounded(sample["entropy"], 4)
            assert value(width) == rounded(sample["width"], 4)
            assert 0 <= sample["entropy"] <= math.log2(10) + 1e-6

    def test_certain_and_uncertain(self, made):
        certain, uncertain = made.numbers("table-15").values()
        assert certain["pignistic"][0][0] == certain["label"]
        assert uncertain["pignistic"][0][0] != uncertain["label"]
        assert certain["entropy"] < uncertain["entropy"]

    def test_rotated_eight_deceives_the_cnn(self, made):
        ((name, sample),) = made.numbers("table-9").items()
        assert sample["label"] == "8"
        assert sample["cnn"][0][0] != "8" or name == "8 turned by 180°"
