from reproduction import exhibit
from reproduction.scales import METHODS
from tests.reproduction.commands import percent, rounded, uses_tiny_results, value

verdict_of_accuracy, verdict_of_time = exhibit("table-1").verdict, exhibit("table-6").verdict


def accuracies(**rsnn):
    """Every method has 0.8, RS-NN what is given by data set."""
    others = {method: [0.8] for method in METHODS}
    return {"accuracy": {data: {**others, "rsnn": [accuracy]} for data, accuracy in rsnn.items()}}


def test_accuracy_verdict():
    assert "every data set is confirmed. " in verdict_of_accuracy(accuracies(mnist=0.9, intel=0.85))
    partly = verdict_of_accuracy(accuracies(mnist=0.9, intel=0.7))
    assert "is confirmed only on mnist. " in partly
    assert "mnist +10.00 vs. LB-BNN; intel -10.00 vs. LB-BNN" in partly
    assert "is not confirmed. " in verdict_of_accuracy(accuracies(mnist=0.7, intel=0.7))


def test_time_verdict():
    seconds = {"rsnn": [30.0, 50.0], "softmax": [20.0], "ensemble": [100.0]}
    text = verdict_of_time({"seconds": seconds})
    assert "takes 2.0 times as long as training CNN" in text
    assert text.endswith("From fastest to slowest: CNN, RS-NN, DE.")


class TestTiny:
    pytestmark = uses_tiny_results

    def test_accuracy_table(self, made):
        numbers, table = made.numbers("table-1"), made.table("table-1")
        milliseconds = numbers["milliseconds"]
        assert list(table) == list(METHODS.values())
        for method, title in METHODS.items():
            *shares, time, ratio = table[title]
            for cell, accuracy in zip(shares, numbers["accuracy"].values(), strict=True):
                assert value(cell) == percent(accuracy[method][0])
            assert value(time) == rounded(milliseconds[method], 2)
            assert value(ratio) == rounded(milliseconds[method] / milliseconds["softmax"], 2)
        assert table["RS-NN"][0].endswith("(99.71)")

    def test_accuracies_are_those_of_the_stored_evaluations(self, made):
        shop = made.shop
        for method, (accuracy,) in made.numbers("table-1")["accuracy"]["mnist"].items():
            result = shop.evaluation("mnist", shop.config("mnist", method))
            share = (result.predictions["test"].labels == result.labels["test"]).double().mean().item()
            assert accuracy == rounded(share, 5)

    def test_time_table(self, made):
        seconds, table = made.numbers("table-6")["seconds"], made.table("table-6")
        for method, title in METHODS.items():
            (spent,) = seconds[method]
            assert spent > 0
            assert value(table[title][0]) == rounded(spent / 60, 2)
            assert value(table[title][1]) == rounded(spent / seconds["softmax"][0], 2)
        assert seconds["ensemble"][0] > seconds["softmax"][0]  # five networks
