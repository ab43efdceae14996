"""Networks built from classifiers: which layer is replaced, and the errors where that is ambiguous."""

from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from randomset import Budget, RandomSetNetwork
from randomset.errors import RandomSetError

BUDGET = Budget.from_sets([{"cat", "dog"}, {"dog", "car"}], ["cat", "dog", "car"])
RNG = torch.Generator().manual_seed(1)
X, IMAGES = torch.randn(10, 4, generator=RNG), torch.randn(2, 1, 8, 8, generator=RNG)
IDS = torch.randint(20, (2, 5), generator=RNG)


class Residual(nn.Module):
    """Like torchvision's ResNet: ends in `fc`, with as many classes as an inner layer has channels."""

    def __init__(self, classes=16):
        super().__init__()
        self.conv, self.more = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 16, 3)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        return self.fc(self.more(self.conv(x)).mean((2, 3)))


class Transformer(nn.Module):
    """Like torchvision's ViT: attention and MLPs, ends in `heads.head`."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, 4)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(8, 5))

    def forward(self, x):
        return self.heads(self.encoder(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class Pretrained(nn.Module):
    """Like Hugging Face's sequence classifiers: a two-layer head, and an output object with logits."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(20, 8)
        self.classifier = nn.ModuleDict({"dense": nn.Linear(8, 8), "out_proj": nn.Linear(8, 2)})

    def forward(self, input_ids, attention_mask=None):
        pooled = self.classifier["dense"](self.embeddings(input_ids).mean(1))
        return SimpleNamespace(loss=None, logits=self.classifier["out_proj"](pooled))


class LastToken(Pretrained):
    """Like GPT-2's classifier: classifies every token and returns the last."""

    def forward(self, input_ids, attention_mask=None):
        each = self.classifier["out_proj"](self.classifier["dense"](self.embeddings(input_ids)))
        return SimpleNamespace(logits=each[:, -1])


class Auxiliary(Residual):
    """Like Inception: in training mode, a tuple with a second, auxiliary prediction."""

    Outputs = namedtuple("Outputs", ["logits", "aux"])

    def __init__(self):
        super().__init__(classes=7)
        self.aux = nn.Sequential(nn.Flatten(), nn.Linear(16 * 36, 7))

    def forward(self, x):
        inside = self.conv(x)
        logits = self.fc(self.more(inside).mean((2, 3)))
        return self.Outputs(logits, self.aux(inside)) if self.training else logits


class WithGetter(nn.Module):
    """Like timm: two heads of the same shape, and a method that returns the classifier."""

    def __init__(self):
        super().__init__()
        self.head, self.head_dist = nn.Linear(4, 3), nn.Linear(4, 3)

    def get_classifier(self):
        return self.head

    def forward(self, x):
        return self.head(x)


class TwoHeads(WithGetter):
    get_classifier = None


CLASSIFIERS = {
    "plain": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), X, "2"),
    "square": (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), X, "2"),
    "with softmax": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3), nn.Softmax(-1)), X, "1"),
    "nested": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.ReLU(), nn.Linear(6, 3))), X, "1.1"),
    "residual": (Residual, IMAGES, "fc"),
    "transformer": (Transformer, IMAGES, "heads.head"),
    "pretrained": (Pretrained, IDS, "classifier.out_proj"),
    "last token": (LastToken, IDS, "classifier.out_proj"),
    "auxiliary": (Auxiliary, IMAGES, "fc"),
    "getter": (WithGetter, X, "head"),
}


@pytest.mark.parametrize("case", CLASSIFIERS)
class TestFromClassifier:
    def test_the_last_layer_is_replaced(self, case):
        make, x, layer = CLASSIFIERS[case]
        classifier = make()
        before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
        model = RandomSetNetwork.from_classifier(classifier, BUDGET)
        assert model.replaced_layer == layer
        assert model(x).shape == (len(x), 5)
        assert torch.equal(model.eval()(x), model.head(model.features(x)))
        after = classifier.state_dict()
        assert before.keys() == after.keys()  # the classifier itself is unchanged
        assert all(torch.equal(before[name], after[name]) for name in before)

    def test_features_are_the_inputs_of_the_layer(self, case):
        make, x, layer = CLASSIFIERS[case]
        classifier = make().eval()
        model = RandomSetNetwork.from_classifier(classifier, BUDGET).eval()
        caught = []
        classifier.get_submodule(layer).register_forward_pre_hook(lambda _, args: caught.append(args[0]))
        classifier(x)
        given = caught[0] if caught[0].dim() == 2 else caught[0][:, -1]
        assert torch.allclose(model.features(x), given)

    def test_loading_needs_a_classifier_of_the_same_class(self, case, tmp_path):
        make, x, _ = CLASSIFIERS[case]
        model = RandomSetNetwork.from_classifier(make(), BUDGET).eval()
        with pytest.raises(RandomSetError, match="backbone="):
            RandomSetNetwork.load(model.save(tmp_path))
        again = RandomSetNetwork.load(tmp_path, backbone=make())
        assert torch.equal(again(x), model(x))


class TestAmbiguousClassifiers:
    def test_several_candidate_layers(self):
        with pytest.raises(RandomSetError, match=r"head \(4 → 3\), head_dist \(4 → 3\).*layer='head'"):
            RandomSetNetwork.from_classifier(TwoHeads(), BUDGET)
        assert RandomSetNetwork.from_classifier(TwoHeads(), BUDGET, layer="head")(X).shape == (10, 5)

    def test_candidates_nested_in_a_sequential(self):
        model = nn.Sequential(nn.Identity(), nn.Sequential(TwoHeads()))
        with pytest.raises(RandomSetError, match=r"1\.0\.head \(4 → 3\).*layer='1\.0\.head'"):
            RandomSetNetwork.from_classifier(model, BUDGET)
        assert RandomSetNetwork.from_classifier(model, BUDGET, layer="1.0.head")(X).shape == (10, 5)

        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.coarse, self.fine = nn.Linear(4, 7), nn.Linear(4, 3)

            def forward(self, x):
                return self.fine(x)

        network = RandomSetNetwork.from_classifier(nn.Sequential(nn.Identity(), Two()), BUDGET)
        assert network.replaced_layer == "1.fine"  # the layer with as many outputs as there are classes

    def test_no_linear_layer(self):
        with pytest.raises(RandomSetError, match=r"no linear layer.*Sequential with 0 \(Conv2d\)"):
            RandomSetNetwork.from_classifier(nn.Sequential(nn.Conv2d(1, 3, 3)), BUDGET)

    def test_unknown_layer_name(self):
        with pytest.raises(RandomSetError, match=r"got fc; expected one of 0 \(4 → 3\)"):
            RandomSetNetwork.from_classifier(nn.Sequential(nn.Linear(4, 3)), BUDGET, layer="fc")

    def test_a_model_without_classifier(self):
        model = WithGetter()
        model.head = nn.Identity()
        with pytest.raises(RandomSetError, match="directly"):
            RandomSetNetwork.from_classifier(model, BUDGET)

    def test_a_softmax_in_forward_is_detected(self):
        class Normalised(WithGetter):
            def forward(self, x):
                return self.head(x).log_softmax(1)

        model = RandomSetNetwork.from_classifier(Normalised(), BUDGET)
        with pytest.raises(RandomSetError, match="softmax"):
            model(X)

    def test_not_a_module(self):
        with pytest.raises(RandomSetError, match=r"must be a torch\.nn\.Module"):
            RandomSetNetwork.from_classifier("resnet18", BUDGET)
