"""Results by class."""

import pytest
import torch
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from randomset.evaluation import Evaluation, evaluate
from randomset.evaluation.by_class import class_section
from tests.evaluation.conftest import TEST, network


def test_hand_worked():
    labels, predicted = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 1, 1, 1, 0, 1])
    section = class_section(labels, predicted, 4)
    assert section["samples"] == [3, 2, 1, 0]
    assert section["confusion"] == [[1, 2, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert section["confused"] == [[0, 1, 2], [1, 0, 1], [2, 1, 1]]
    assert section["recall"][:3] == pytest.approx([1 / 3, 1 / 2, 0])
    assert section["precision"][:2] == pytest.approx([1 / 2, 1 / 4])
    assert section["f1"][:3] == pytest.approx([0.4, 1 / 3, 0])
    for name in ("precision", "recall", "f1"):
        assert section[name][3] is None  # no input and no prediction of this class
    assert section["precision"][2] is None


def test_agrees_with_scikit_learn():
    labels, predicted = torch.randint(7, (2, 500))
    section = class_section(labels, predicted, 7)
    precision, recall, f1, samples = precision_recall_fscore_support(labels, predicted)
    assert section["precision"] == pytest.approx(precision.tolist())
    assert section["recall"] == pytest.approx(recall.tolist())
    assert section["f1"] == pytest.approx(f1.tolist())
    assert section["samples"] == samples.tolist()
    assert section["confusion"] == confusion_matrix(labels, predicted).tolist()


def test_many_classes_have_no_matrix():
    labels = torch.arange(3000)
    section = class_section(labels, labels.clamp_max(2998), 3000)
    assert "confusion" not in section
    assert section["confused"] == [[2999, 2998, 1]]


class TestTables:
    def test_of_an_evaluation(self, tmp_path):
        result = evaluate(network(), TEST)
        classes = next(table for table in result.tables if table.title == "Classes")
        assert [row[0] for row in classes.rows] == list(result.classes)
        assert classes.rows[0][3] == f"{100 * result['by_class']['recall'][0]:.2f} %"
        confused = next(table for table in result.tables if table.title == "Most confused classes")
        true, predicted, count = result["by_class"]["confused"][0]
        assert confused.rows[0][:3] == (result.classes[true], result.classes[predicted], str(count))
        result.save(tmp_path)
        assert Evaluation.load(tmp_path)["by_class"]["confused"] == result["by_class"]["confused"]

    def test_of_many_classes_show_those_with_the_lowest_recall(self):
        labels = torch.arange(60).repeat(2)
        predicted = labels.clone()
        predicted[7] = 8

        def probabilities(inputs):
            return torch.nn.functional.one_hot(predicted[inputs[:, 0].long()], 60).double()

        result = evaluate(probabilities, (torch.arange(120.0)[:, None], labels))
        table = next(table for table in result.tables if table.title == "Classes")
        assert len(table.rows) == 50
        assert table.rows[0] == ("7", "2", "100.00 %", "50.00 %", "66.67 %")
        assert table.note == "The 50 of 60 classes with the lowest recall."
