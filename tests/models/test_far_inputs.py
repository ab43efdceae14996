"""Inputs far from all training data have most of their mass on Θ, whatever kind of data they are."""

import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split
from torch import nn

import randomset as rs
from randomset import backbones
from randomset.backbones.hugging_face import load_tokenizer, tokenize
from tests.texts import WORDS, documents, tiny_bert


def far_points(inputs, times, count=60):
    """Return points in random directions, so many standard deviations from the mean in each feature."""
    directions = torch.randn(count, inputs.shape[1], generator=torch.Generator().manual_seed(0))
    directions = nn.functional.normalize(directions.to(inputs)) * inputs.shape[1] ** 0.5
    return inputs.mean(0) + times * inputs.std(0) * directions


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_digits])
def test_tables(load):
    inputs, labels = load(return_X_y=True)
    train, test, targets, truths = train_test_split(inputs, labels, random_state=0, stratify=labels)
    model = rs.RandomSetClassifier(epochs=30, validation_fraction=0.2, random_state=0).fit(train, targets)
    plain = rs.RandomSetClassifier(
        epochs=30, validation_fraction=0.2, random_state=0, reliability="none"
    ).fit(train, targets)
    assert model.score(test, truths) >= plain.score(test, truths) - 0.02
    assert model.predict_known(test).mean() > 0.8
    ten = far_points(torch.from_numpy(train), 10).numpy()
    for far in (ten, 50 * train[:50], train[:50] + 50 * train.std(0), train[:50] - 50 * train.std(0)):
        assert not model.predict_known(far).any()
        answer = model.predict_random_set(far)
        assert answer.mass[:, -1].min() > 0.9
        assert not answer.familiar.any()


@pytest.mark.parametrize("name", ["wine", "digits"])
def test_ten_times_the_spread(name):
    inputs, labels = {"wine": load_wine, "digits": load_digits}[name](return_X_y=True)
    inputs = torch.from_numpy(inputs).float()
    inputs = (inputs - inputs.mean(0)) / inputs.std(0).clamp_min(1e-3)
    labels = torch.from_numpy(labels).long()
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    val, train = order[: len(order) // 4], order[len(order) // 4 :]
    network = rs.RandomSetNetwork(backbones.mlp(inputs.shape[1]), rs.Budget.singletons(int(labels.max()) + 1))
    rs.fit(
        network, (inputs[train], labels[train]), (inputs[val], labels[val]), epochs=10, batch_size=32,
        progress=False,
    )  # fmt: skip
    assert network.predict(far_points(inputs, 10)).mass[:, -1].min() > 0.9
    assert network.predict(inputs[val]).familiar.float().mean() > 0.9


def test_images():
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))  # they are by writer
    images = torch.from_numpy(images).float().reshape(-1, 1, 8, 8)[order] / 16
    labels = torch.from_numpy(labels).long()[order]
    network = rs.RandomSetNetwork(backbones.small_cnn(1, 8), rs.Budget.singletons(10))
    rs.fit(
        network, (images[:1200], labels[:1200]), (images[1200:1500], labels[1200:1500]), epochs=8,
        progress=False,
    )  # fmt: skip
    known = network.predict(images[1500:])
    assert known.mass[:, -1].median() < 0.1
    noise = 10 * torch.randn(100, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for far in (noise, 10 * images[:100], -10 * images[:100]):
        with torch.inference_mode():  # predict refuses some of these, since images are between 0 and 1
            assert network.predict_batch(far).mass[:, -1].min() > 0.9


def test_texts(tmp_path):
    # The far texts consist of words that never occur in the others.
    folder = str(tiny_bert(tmp_path))
    encoder, tokenizer = backbones.build(f"hf:{folder}", weights="default"), load_tokenizer(folder)
    texts, topics = documents(600)
    tokens, labels = tokenize(texts, tokenizer, 16), torch.tensor([WORDS.index(topic) for topic in topics])
    network = rs.RandomSetNetwork(encoder, rs.Budget.powerset(3), freeze_backbone=True)
    rs.fit(network, (tokens[:400], labels[:400]), (tokens[400:], labels[400:]), epochs=10, progress=False)
    known, _ = documents(100, seed=1)
    assert network.predict(tokenize(known, tokenizer, 16)).reliability.median() > 0.9
    far = [" ".join(["zebra"] * length) for length in range(3, 14)]
    assert network.predict(tokenize(far, tokenizer, 16)).mass[:, -1].min() > 0.9
