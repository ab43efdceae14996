"""EfficientNet-Lite0 with ImageNet weights from a package, on photographs from scikit-learn."""

import pytest
import torch
from sklearn.datasets import load_sample_images

from randomset import backbones
from randomset.backbones.vision import _timm_file
from randomset.backbones.weights import load_weights_into, read_weights
from randomset.training.preparation import preprocess_for


@pytest.fixture(scope="module")
def photographs():
    images = [torch.tensor(image).permute(2, 0, 1)[None] for image in load_sample_images().images]
    return torch.cat(
        [torch.nn.functional.interpolate(i.float(), (224, 224), mode="bilinear") for i in images]
    )


def test_it_recognises_the_photographs(photographs):
    """The photographs are a Chinese temple and a flower."""
    import timm

    model = timm.create_model("tf_efficientnet_lite0")
    file = _timm_file("tf_efficientnet_lite0", model.pretrained_cfg)
    assert "efficientnet-lite0" in file.name
    load_weights_into(model, read_weights(file), None, str(file))
    backbone = backbones.build("timm:tf_efficientnet_lite0", weights="default")
    standardise = preprocess_for(backbone, photographs.byte())
    assert standardise is not None
    with torch.no_grad():
        p = model.eval()(standardise(photographs.byte())).softmax(1)
    temple, flower = p
    buildings = [442, 483, 538, 663, 698, 832]  # bell cote, castle, dome, monastery, palace and stupa
    assert int(temple.argmax()) in buildings
    assert temple[buildings].sum() > 0.5
    assert int(flower.argmax()) == 985  # daisy


def test_features_come_from_these_weights(photographs):
    backbone = backbones.build("timm:tf_efficientnet_lite0", weights="default").eval()
    assert (backbone.pretrained_inputs.mean[0], backbone.pretrained_inputs.std[0]) == (127 / 255, 128 / 255)
    assert "by order" in backbone.pretrained_inputs.remark
    standardise = preprocess_for(backbone, photographs.byte())
    assert standardise is not None
    features = backbone(standardise(photographs.byte()))
    assert features.shape == (2, 1280)
    other = backbones.build("timm:tf_efficientnet_lite0").eval()
    assert not torch.allclose(other(photographs / 255), features)
