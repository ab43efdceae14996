"""The data of a run: held-out samples, changed folders, and copies of the training data."""

import shutil

import pytest
import torch

from randomset.data.digests import sample_digests
from randomset.errors import FileFormatError
from randomset.evaluation import Evaluation
from randomset.runs import Run
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
        assert "cannot be used for a threshold" in caplog.text


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
