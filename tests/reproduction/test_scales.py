"""Scale full is the paper's configuration; tests/vision takes its first training step."""

import pytest

from randomset.errors import RandomSetError
from reproduction import SCALES, Workshop, exhibit


@pytest.mark.parametrize("data", ["mnist", "cifar10", "intel", "cifar100", "imagenet", "imagenet-vit"])
def test_full_configurations_are_the_papers(tmp_path, data):
    shop = Workshop(SCALES["full"], tmp_path)
    config = shop.config(data)
    recipe = config.plan()
    assert (recipe.epochs, recipe.batch_size, recipe.optimizer) == (200, 128, "adam")
    assert (recipe.learning_rate, recipe.milestones) == (1e-3, (80, 120, 160, 180))
    assert (config.alpha, config.beta, config.size, config.reducer) == (1e-3, 1e-3, 224, "tsne")
    assert config.num_sets == {"cifar100": 200, "imagenet": 3000, "imagenet-vit": 3000}.get(data, 20)
    assert len(shop.seeds) == 5


def test_full_tables_include_the_largest_data(tmp_path):
    shop = Workshop(SCALES["full"], tmp_path)
    for id, sources in {
        "table-1": {"mnist", "cifar10", "intel", "cifar100", "imagenet"},
        "table-2": {"cifar10", "mnist", "imagenet"},
        "table-3": {"cifar10", "mnist", "imagenet"},
        "table-7": {"imagenet"},
    }.items():
        assert {config.source for config in exhibit(id).models(shop)} == sources
    backbones = {id: exhibit(id).models(shop)[-1].backbone for id in ("table-2", "table-7")}
    assert backbones == {"table-2": "torchvision:resnet50", "table-7": "timm:vit_base_patch16_224"}


def test_full_text_recipe(tmp_path):
    recipe = Workshop(SCALES["full"], tmp_path).config("text").plan()
    assert (recipe.learning_rate, recipe.batch_size, recipe.epochs) == (3e-5, 32, 10)


def test_unavailable_data(tmp_path):
    with pytest.raises(RandomSetError, match="data set not available at this scale; got cifar100 at tiny"):
        SCALES["tiny"].setting("cifar100", tmp_path)


def test_generated_data_join_the_options(tmp_path):
    options, unknown = SCALES["tiny"].setting("mnist", tmp_path)
    assert options == {"epochs": 4, "num_sets": 8, "source": "digits"}
    assert list(unknown) == ["fashion-mnist", "kmnist"]
    assert unknown["kmnist"] == str(tmp_path / "digits-turned.npz")
