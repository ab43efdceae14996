"""The data of a run: held-out samples, changed folders, and copies of the training data."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch import nn

from randomset.data.sources import Source
from randomset.data.splits import sample_digests
from randomset.errors import FileFormatError, ShapeError
from randomset.evaluation import Evaluation
from randomset.models import Softmax
from randomset.runs import NetworkInputs, Run
from randomset.runs.data import drawn, measured_inputs
from tests.hardening.conftest import RUNS
from tests.runs.conftest import write_photos


def photo_of(run, part, number=0):
    """The path of a photo that a run uses for a purpose."""
    source = getattr(run.data(), part)
    return source.files[number]


class TestHeldOutSamples:
    def test_sizes(self, run):
        test, validation, calibration = run.data()
        assert (len(test), len(validation), len(calibration)) == (40, 20, 10)
        assert test.remarks == ()

    def test_the_source_by_name_means_its_held_out_samples(self, run, trained):
        assert len(run.data(test=str(trained / "photos")).test) == 40

    def test_a_run_without_a_split(self, run):
        (run.folder / "split.json").unlink()
        with pytest.raises(FileFormatError, match=r"no held-out samples to test on; .*--test SOURCE"):
            run.data()

    def test_a_run_made_before(self, tmp_path):
        run = Run(shutil.copytree(RUNS / "0.1", tmp_path / "run"))
        assert len(run.data().test) == 180
        assert len(run.data(test="digits").test) == 180


class TestChangedFolders:
    def test_one_photo_more(self, changing):
        run, photos = changing
        write_photos(photos, [300])
        test, validation, _ = run.data()
        assert len(test) == 41
        assert len(validation) == 20
        assert test.remarks == ("1 of 201 samples are new since training",)

    def test_one_photo_less(self, changing):
        run, photos = changing
        (photos / photo_of(run, "test")).unlink()
        test, validation, _ = run.data()
        assert (len(test), len(validation)) == (39, 20)
        assert test.remarks == ("1 of the 200 samples at training time are missing",)

    def test_a_photo_of_the_training_less(self, changing):
        run, photos = changing
        held = {file for part in run.data() for file in part.files}
        file = next(path for path in sorted(photos.rglob("*.png")) if path.name not in _names(held))
        file.unlink()
        assert [len(part) for part in run.data()] == [40, 20, 10]

    def test_one_photo_with_another_label(self, changing):
        run, photos = changing
        file = photos / photo_of(run, "test")
        other = "1" if file.parent.name != "1" else "2"
        before = run.data().test
        shutil.move(file, photos / other / file.name)
        after = run.data().test
        assert sorted(sample_digests(after.inputs)) == sorted(sample_digests(before.inputs))
        moved = [label for label, path in zip(after.labels, after.files, strict=True) if file.name in path]
        assert [after.classes[int(label)] for label in moved] == [other]

    def test_renamed_photos(self, changing):
        run, photos = changing
        before = sorted(sample_digests(run.data().test.inputs))
        for number, path in enumerate(sorted(photos.rglob("*.png"), key=lambda path: path.name[::-1])):
            path.rename(path.with_name(f"photo-{number:03}.png"))
        test = run.data().test
        assert sorted(sample_digests(test.inputs)) == before
        assert test.remarks == ()

    def test_a_moved_folder(self, changing):
        run, photos = changing
        shutil.move(photos, photos.with_name("moved"))
        with pytest.raises(FileFormatError, match="no such data"):
            run.data()
        before = len(run.data(test=str(photos.with_name("moved"))).test)
        assert before == 40


class TestOtherTestData:
    def test_a_copy_of_the_training_data_is_tested_on_what_was_held_out(self, run, trained, tmp_path):
        copy = shutil.copytree(trained / "photos", tmp_path / "copy")
        write_photos(copy, [300, 301])
        test = run.data(test=str(copy)).test
        assert len(test) == 42
        assert test.remarks == ("160 of 202 inputs were used in training and are excluded",)
        held = set(sample_digests(run.data().test.inputs))
        assert len(held & set(sample_digests(test.inputs))) == 40

    def test_only_training_data(self, run, trained, tmp_path):
        held = {file for part in run.data() for file in part.files}
        for path in (trained / "photos").rglob("*.png"):
            if path.name not in _names(held):
                place = tmp_path / "seen" / path.parent.name / path.name
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
        with pytest.raises(FileFormatError, match="no inputs are left to test on; got seen: all 130 inputs"):
            run.data(test=str(tmp_path / "seen"))

    def test_other_photos(self, run, tmp_path):
        write_photos(tmp_path / "others", range(300, 330))
        test, validation, _ = run.data(test=str(tmp_path / "others"))
        assert len(test) == 30
        assert test.remarks == ()
        assert len(validation) == 20

    def test_validation_data_without_those_of_the_training(self, run, trained, tmp_path):
        copy = shutil.copytree(trained / "photos", tmp_path / "copy")
        assert len(run.data(validation=str(copy)).validation) == 40

    def test_without_the_training_data_there_is_no_threshold(self, changing, tmp_path, caplog):
        run, photos = changing
        shutil.rmtree(photos)
        write_photos(tmp_path / "others", range(300, 330))
        test, validation, calibration = run.data(test=str(tmp_path / "others"))
        assert (len(test), validation, calibration) == (30, None, None)
        assert "No threshold is chosen" in caplog.text
        with pytest.raises(FileFormatError, match=r"no such data.*have moved, say where they are: --test"):
            run.data()


def test_draws_by_seed(run):
    source = run.data().test
    few = drawn(source, 10, seed=1)
    assert len(few) == 10
    assert torch.equal(few.inputs, drawn(source, 10, seed=1).inputs)
    assert not torch.equal(few.inputs, drawn(source, 10, seed=2).inputs)
    assert drawn(source, None, 0) is drawn(source, 40, 0) is source


def test_inputs_that_an_evaluation_left_out(run):
    source = run.data().test
    result = Evaluation({"left_out": {"far": [0, 2, 99]}}, {}, {})
    assert measured_inputs(source, result, "near") is source
    kept = measured_inputs(source, result, "far")
    assert torch.equal(kept.inputs, source.inputs[[1, *range(3, 40)]])


def _names(files):
    return {str(file).rpartition("/")[2] for file in files}


def model(**notes):
    """A model whose notes say what its inputs are."""
    found = Softmax(nn.Linear(2, 3), 2)
    found.notes = {"config": {"source": "digits"}, "classes": ["a", "b"], "seconds": 1.0, **notes}
    return found


def images(*shape, scale=1.0):
    tensor = torch.linspace(0, scale, int(np.prod(shape))).reshape(shape)
    return Source("pictures", "images", tensor, torch.zeros(len(tensor)).long(), ("a", "b"))


def loader(folder, **notes):
    return NetworkInputs(model(**notes), folder, strict=False)


class TestFitting:
    def test_images_are_converted_with_a_remark(self, tmp_path):
        load = loader(tmp_path, input_shape=[1, 8, 8], largest_input=1.0)
        fitted = load.fitting(images(2, 3, 16, 16))
        assert tuple(fitted.inputs.shape) == (2, 1, 8, 8)
        assert fitted.remarks == ("colour converted to grey", "resized from 16 × 16 to 8 × 8")
        assert load.fitting(images(2, 1, 8, 8)).remarks == ()

    def test_features_of_another_width(self, tmp_path):
        source = Source("table", "features", torch.zeros(2, 4), torch.zeros(2).long(), ("a",))
        with pytest.raises(ShapeError, match=r"got table of shape \(2, 4\); expected n × 5 numbers"):
            loader(tmp_path, input_shape=[5]).fitting(source)

    @pytest.mark.parametrize(("largest", "scale"), [(1.0, 255.0), (0.1, 3.0)])
    def test_another_scale(self, tmp_path, largest, scale):
        load = loader(tmp_path, input_shape=[1, 4, 4], largest_input=largest)
        with pytest.raises(ShapeError, match=f"on a different scale than in training; .*up to {scale:g}"):
            load.fitting(images(2, 1, 4, 4, scale=scale))

    def test_texts_and_images(self, tmp_path):
        texts = Source("letters", "text", ["a", "b"], torch.zeros(2).long(), ("a",))
        with pytest.raises(ShapeError, match="the network does not take texts; got letters with text"):
            loader(tmp_path, input_shape=[4]).fitting(texts)
        with pytest.raises(ShapeError, match="the network takes texts; got pictures with images"):
            loader(tmp_path, input_shape=[4], tokens=4).fitting(images(2, 1, 4, 4))


class TestNotes:
    def test_unfinished_training(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(FileFormatError, match=r"the training of this run is not finished; .*--resume"):
            loader(tmp_path, config=None)

    @pytest.mark.parametrize(
        "notes",
        [
            {"config": {"source": 3}},
            {"input_shape": [0, 2]},
            {"input_shape": "wide"},
            {"tokens": -1},
            {"columns": [1]},
            {"classes": None},
            {"seconds": "long"},
        ],
        ids=json.dumps,
    )
    def test_damaged_notes(self, tmp_path, notes):
        (name,) = notes
        with pytest.raises(FileFormatError, match=rf"notes on its \w+ are damaged; got {name}"):
            loader(tmp_path, **notes)
