from reproduction import exhibit
from reproduction.scales import METHODS
from tests.reproduction.commands import percent, rounded, uses_tiny_results, value

UNKNOWN = {"cifar10": ("svhn", "intel"), "mnist": ("fashion-mnist", "kmnist")}


def test_detection_verdict():
    def models(rsnn):
        def areas(auroc):
            return {"unknown": {name: {"auroc": [auroc], "auprc": [0.5]} for name in ("svhn", "intel")}}

        return {"cifar10": {method: areas(rsnn if method == "rsnn" else 0.8) for method in METHODS}}

    verdict = exhibit("table-2").verdict
    assert "in 4 of 4 cases" in verdict(models(0.9))  # ties go to the first method, RS-NN
    assert "in 2 of 4 cases" in verdict(models(0.7))
    assert "svhn -10.00 vs. LB-BNN; intel -10.00 vs. LB-BNN." in verdict(models(0.7))


def test_width_verdict():
    def model(known, unknown, by_width):
        areas = {"width": {"mean": [unknown]}, "auroc": [0.8], "auroc by width": [by_width]}
        return {"mnist": {"width": {"mean": [known]}, "unknown": {"fashion-mnist": areas, "kmnist": areas}}}

    verdict = exhibit("table-3").verdict
    assert "credal width in 2 of 2 cases;" in verdict(model(0.1, 0.3, 0.9))
    assert verdict(model(0.1, 0.3, 0.9)).endswith("better than the entropy in 2 of 2.")
    assert "credal width in 0 of 2 cases;" in verdict(model(0.3, 0.1, 0.7))
    assert verdict(model(0.3, 0.1, 0.7)).endswith("better than the entropy in 0 of 2.")


def test_near_verdict():
    def models(rsnn, softmax):
        areas = {"rsnn": rsnn, "softmax": softmax}
        return {method: {"unknown": {"cifar100": {"auroc": [area]}}} for method, area in areas.items()}

    verdict = exhibit("table-8").verdict
    assert "in points: +10.00 vs. CNN;" in verdict(models(0.8, 0.7))
    assert "in points: -10.00 vs. CNN;" in verdict(models(0.7, 0.8))


class TestTiny:
    pytestmark = uses_tiny_results

    def test_detection_tables(self, made):
        numbers = made.numbers("table-2")
        for (data, unknown), (_, *rows) in zip(UNKNOWN.items(), made.tables("table-2"), strict=True):
            for method, row in zip(METHODS, rows, strict=True):
                model = numbers[data][method]
                assert row[0] == METHODS[method]
                expected = [rounded(model["entropy"]["mean"][0]), rounded(model["ece"][0], 4)]
                expected.append(rounded(model["scaled ece"][0], 4))
                for name in unknown:
                    areas = model["unknown"][name]
                    expected += [percent(areas["auroc"][0]), percent(areas["auprc"][0])]
                    expected.append(rounded(areas["entropy"]["mean"][0]))
                assert [value(cell) for cell in row[1:]] == expected

    def test_width_table(self, made):
        numbers, table = made.numbers("table-3"), made.table("table-3")
        for data, unknown in UNKNOWN.items():
            width, *areas = table[data]
            assert value(width) == rounded(numbers[data]["width"]["mean"][0])
            assert areas == ["–", "–"]
            for name in unknown:
                model = numbers[data]["unknown"][name]
                width, *areas = table[f"{data} → {name}"]
                assert value(width) == rounded(model["width"]["mean"][0])
                assert [value(area) for area in areas] == [
                    percent(model[part][0]) for part in ("auroc by width", "auroc")
                ]

    def test_near_table(self, made):
        numbers, table = made.numbers("table-8"), made.table("table-8")
        for method in ("rsnn", "softmax"):
            entropy, width, auroc, auprc, unknown_entropy, unknown_width = table[METHODS[method]]
            known, unknown = numbers[method], numbers[method]["unknown"]["cifar100"]
            assert value(entropy) == rounded(known["entropy"]["mean"][0])
            assert value(auroc) == percent(unknown["auroc"][0])
            assert value(auprc) == percent(unknown["auprc"][0])
            assert value(unknown_entropy) == rounded(unknown["entropy"]["mean"][0])
            if method == "rsnn":
                assert value(width) == rounded(known["width"]["mean"][0])
                assert value(unknown_width) == rounded(unknown["width"]["mean"][0])
            else:
                assert width == unknown_width == "–"
