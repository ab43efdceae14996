from reproduction import exhibit
from tests.reproduction.commands import percent, rounded, uses_tiny_results, value

verdict = exhibit("table-4").verdict


def test_verdict():
    def both(rsnn, softmax):
        return {"rsnn": {"accuracy": [rsnn]}, "softmax": {"accuracy": [softmax]}}

    assert verdict({"VGG": both(0.9, 0.8), "ViT": both(0.7, 0.8)}).startswith(
        "RS-NN is more accurate than CNN with 1 of 2 networks (VGG);"
    )
    assert "with 0 of 1 networks (none);" in verdict({"ViT": both(0.7, 0.8)})


class TestTiny:
    pytestmark = uses_tiny_results

    def test_table(self, made):
        numbers, table = made.numbers("table-4"), made.table("table-4")
        assert set(table) == set(numbers) == {"small CNN", "ViT, 1 layer"}
        for name, both in numbers.items():
            cells = [value(cell) for cell in table[name]]
            assert cells[:2] == [percent(both[method]["accuracy"][0]) for method in ("rsnn", "softmax")]
            assert cells[2:] == [rounded(both[m]["parameters"] / 1e6) for m in ("rsnn", "softmax")]

    def test_parameters_differ_by_the_outputs(self, made):
        both, shop = made.numbers("table-4")["small CNN"], made.shop
        network = shop.model(shop.config("cifar10"))
        outputs = len(network.budget) - network.budget.num_classes
        assert outputs == 8
        extra = both["rsnn"]["parameters"] - both["softmax"]["parameters"]
        assert extra == outputs * (network.backbone.num_features + 1)
