from reproduction import exhibit
from reproduction.scales import METHODS
from tests.reproduction.commands import percent, rounded, uses_tiny_results, value


def models(*, accuracy=0.9, ratio=2.0, auroc=0.8):
    """CNN has entropy 1 on known and 1.5 on unknown inputs, accuracy 0.85 and AUROC 0.7."""

    def model(share, unknown, area):
        far = {"entropy": {"mean": [unknown]}, "auroc": [area]}
        return {"accuracy": [share], "entropy": {"mean": [1.0]}, "unknown": {"far": far}}

    return {"rsnn": model(accuracy, ratio, auroc), "softmax": model(min(accuracy, 0.85), 1.5, 0.7)}


def test_transformer_verdict():
    verdict = exhibit("table-7").verdict
    confirmed = verdict(models())
    assert " is confirmed: " in confirmed
    assert confirmed.endswith("relative to known ones, is 2.00 for RS-NN and 1.50 for CNN.")
    assert "is not confirmed" in verdict(models(ratio=1.2))
    assert verdict(models(accuracy=0.5)).endswith("too inaccurate to recognise unknown classes.")


def test_text_verdict():
    verdict = exhibit("table-19").verdict
    assert "accuracy +5.00 vs. CNN, AUROC +10.00 vs. CNN;" in verdict(models())
    assert "accuracy +0.00 vs. CNN, AUROC -10.00 vs. CNN;" in verdict(models(accuracy=0.8, auroc=0.6))


class TestTiny:
    pytestmark = uses_tiny_results

    def test_transformer_tables(self, made):
        numbers = made.numbers("table-7")
        (_, *entropies), (_, *qualities) = made.tables("table-7")
        ((name, unknown),) = numbers["rsnn"]["unknown"].items()
        for row, rsnn, softmax in (
            (entropies[0], numbers["rsnn"], numbers["softmax"]),
            (entropies[1], unknown, numbers["softmax"]["unknown"][name]),
        ):
            assert [value(cell) for cell in row[1:]] == [
                rounded(rsnn["width"]["mean"][0]),
                rounded(rsnn["entropy"]["mean"][0]),
                rounded(softmax["entropy"]["mean"][0]),
            ]
        for method, (title, *cells) in zip(("rsnn", "softmax"), qualities, strict=True):
            model = numbers[method]
            assert title == METHODS[method]
            assert value(cells[0]) == percent(model["accuracy"][0])
            assert value(cells[1]) == rounded(model["ece"][0], 4)
            assert value(cells[2]) == percent(model["unknown"][name]["auroc"][0])
        assert value(qualities[0][4]) == percent(unknown["auroc by width"][0])
        assert qualities[1][4] == "–"

    def test_text_table(self, made):
        numbers, table = made.numbers("table-19"), made.table("table-19")
        for method in ("rsnn", "softmax"):
            model = numbers[method]
            (unknown,) = model["unknown"].values()
            assert [value(cell) for cell in table[METHODS[method]][:5]] == [
                percent(model["accuracy"][0]),
                rounded(model["entropy"]["mean"][0]),
                percent(unknown["auroc"][0]),
                percent(unknown["auprc"][0]),
                rounded(unknown["entropy"]["mean"][0]),
            ]
        assert numbers["rsnn"]["accuracy"][0] > 0.5  # three classes
