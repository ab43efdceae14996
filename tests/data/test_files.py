"""Folders of images, tables, data sets in Python, arrays on disk, and fetching."""

import csv

import datasets
import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from randomset.data import arrays, decoding, images, load_inputs, load_source
from randomset.data.catalogue import KNOWN
from randomset.data.downloads import download
from randomset.errors import FileFormatError, LabelError, RandomSetError

rng = np.random.default_rng(0)


def picture(path, shape=(6, 8, 3), value=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = rng.integers(0, 256, shape, dtype=np.uint8) if value is None else np.full(shape, value, np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


@pytest.fixture
def pets(tmp_path):
    """Two classes, five images of one size."""
    pixels = [picture(tmp_path / "pets" / "cat" / f"{i}.png") for i in range(3)]
    pixels += [picture(tmp_path / "pets" / "dog" / "deep" / f"{i}.png") for i in range(2)]
    return tmp_path / "pets", np.stack(pixels)


class TestFolders:
    def test_classes_are_folders(self, pets):
        folder, pixels = pets
        source = load_source(folder)
        assert (source.name, source.kind, source.classes) == ("pets", "images", ("cat", "dog"))
        assert source.labels.tolist() == [0, 0, 0, 1, 1]
        assert np.array_equal(source.inputs.numpy(), pixels.transpose(0, 3, 1, 2))
        assert source.remarks == ()
        assert source.files[4].endswith("dog/deep/1.png")

    def test_images_alone_have_no_labels(self, tmp_path):
        picture(tmp_path / "a.png", (5, 4))
        picture(tmp_path / "b.PNG", (5, 4))
        (tmp_path / "notes.txt").write_text("no image")
        source = load_source(tmp_path, labelled=False)
        assert source.inputs.shape == (2, 1, 5, 4)  # grey stays grey
        assert source.labels.tolist() == [-1, -1]
        with pytest.raises(LabelError, match="no labels"):
            load_source(tmp_path)

    def test_what_other_programs_left_is_no_class(self, tmp_path):
        for split in ("train", "test"):
            for name in ("a", "b"):
                (tmp_path / split / name).mkdir(parents=True)
                picture(tmp_path / split / name / "1.png")
        for stray in (".ipynb_checkpoints", "__MACOSX"):
            (tmp_path / stray).mkdir()
        assert load_source(tmp_path).classes == ("a", "b")
        (tmp_path / "train" / "__MACOSX").mkdir()
        picture(tmp_path / "train" / "__MACOSX" / "1.png")
        assert load_source(tmp_path).classes == ("a", "b")

    def test_a_palette_with_transparency_is_an_image(self, tmp_path):
        colours = Image.fromarray(np.full((4, 4, 3), (200, 0, 0), np.uint8)).quantize(4)
        colours.info["transparency"] = b"\x00\x80\xff\xff"
        colours.save(tmp_path / "1.png", transparency=b"\x00\x80\xff\xff")
        found = load_source(tmp_path, labelled=False)
        assert found.remarks == ()
        assert found.inputs[0, :, 0, 0].tolist() == [200, 0, 0]

    def test_splits_inside(self, tmp_path):
        for split, count in (("train", 3), ("val", 1)):
            for kind in ("cat", "dog"):
                for i in range(count):
                    picture(tmp_path / split / kind / f"{i}.png")
        assert len(load_source(tmp_path)) == 6
        assert len(load_source(tmp_path, "test")) == 2
        (tmp_path / "train").rename(tmp_path / "training")
        (tmp_path / "val").rename(tmp_path / "other")
        assert load_source(tmp_path).classes == ("other", "training")  # no splits: classes with such names

    def test_several_sizes_are_scaled_and_cropped_and_said(self, tmp_path):
        wide = np.zeros((10, 20, 3), np.uint8)
        wide[:, 5:15] = 200  # the middle is bright, what a centre crop leaves
        (tmp_path / "a").mkdir(parents=True)
        Image.fromarray(wide).save(tmp_path / "a" / "wide.png")
        picture(tmp_path / "b" / "small.png", (5, 5, 3), 9)
        source = load_source(tmp_path)
        assert source.inputs.shape == (2, 3, 64, 64)
        assert "2 sizes scaled and centre-cropped to 64 × 64" in source.remarks[0]
        assert source.inputs[0].float().mean() > 190
        assert (source.inputs[1] == 9).all()
        assert load_source(tmp_path, size=(7, 9)).inputs.shape == (2, 3, 7, 9)

    @pytest.mark.parametrize("mode", ["1", "LA", "P", "RGBA", "CMYK", "I;16"])
    def test_every_mode_of_pillow(self, tmp_path, mode):
        value = 255 if mode == "1" else 128
        picture = Image.new("L", (4, 4), value)
        if mode == "I;16":
            picture = Image.fromarray(np.full((4, 4), 128 * 257, np.uint16))
        else:
            picture = picture.convert(mode)
        found = images.pixels_from_pil(picture)
        assert found.shape == ((1 if mode in ("1", "LA", "I;16") else 3), 4, 4)
        assert (found.float() - value).abs().max() <= 1

    def test_floating_point_pixels_have_no_known_range(self, tmp_path):
        Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "a.tiff")
        picture(tmp_path / "b.png", (4, 4))
        source = load_source(tmp_path, labelled=False)
        assert len(source) == 1
        assert "a.tiff (unsupported pixel type" in source.remarks[0]

    def test_the_order_of_the_classes_can_be_told(self, pets):
        folder, pixels = pets
        (folder / "classes.json").write_text('{"dog": "dog/wolf", "cat": "cat"}')
        source = load_source(folder)
        assert source.classes == ("dog/wolf", "cat")
        assert source.labels.tolist() == [0, 0, 1, 1, 1]
        assert np.array_equal(source.inputs[0].numpy(), pixels[3].transpose(2, 0, 1))
        for content in ("[]", "{", '{"dog": 3}', '{"dog": "dog"}'):
            (folder / "classes.json").write_text(content)
            with pytest.raises(FileFormatError, match=r"classes\.json"):
                load_source(folder)

    def test_turned_photographs_stand_upright(self, tmp_path):
        pixels = rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)
        turned = Image.Exif()
        turned[0x0112] = 6  # the camera was held sideways
        Image.fromarray(pixels).save(tmp_path / "a.png", exif=turned)
        found = load_inputs(tmp_path)
        assert np.array_equal(found[0].numpy().transpose(1, 2, 0), np.rot90(pixels, -1))

    def test_a_broken_image_is_left_out_and_named(self, pets):
        folder, pixels = pets
        whole = (folder / "cat" / "1.png").read_bytes()
        (folder / "cat" / "1.png").write_bytes(whole[: len(whole) // 2])
        (folder / "dog" / "x.jpg").write_text("hello")
        source = load_source(folder)
        assert source.labels.tolist() == [0, 0, 1, 1]
        kept = pixels[[0, 2, 3, 4]].transpose(0, 3, 1, 2)
        assert np.array_equal(source.inputs.numpy(), kept)
        assert [name[-9:] for name in source.files] == ["cat/0.png", "cat/2.png", "eep/0.png", "eep/1.png"]
        (remark,) = source.remarks
        assert remark.startswith("2 of 6 images could not be read")
        assert "1.png" in remark
        assert "x.jpg (not an image)" in remark
        with pytest.raises(FileFormatError, match=r"1\.png"):
            load_source(folder, strict=True)

    def test_what_is_wrong_is_said(self, tmp_path):
        with pytest.raises(FileFormatError, match="no images"):
            load_source(tmp_path)
        (tmp_path / "cat").mkdir()
        picture(tmp_path / "dog" / "a.png")
        with pytest.raises(FileFormatError, match=r"no images.*cat"):
            load_source(tmp_path)
        (tmp_path / "cat").rmdir()
        with pytest.raises(LabelError, match="one class only"):
            load_source(tmp_path)
        picture(tmp_path / "loose.png")
        with pytest.raises(FileFormatError, match=r"loose\.png beside dog/"):
            load_source(tmp_path)
        (tmp_path / "dog" / "a.png").write_text("x")
        (tmp_path / "loose.png").unlink()
        with pytest.raises(FileFormatError, match=r"no image in the folder.*a\.png: not an image"):
            load_source(tmp_path, labelled=False)

    def test_large_folders_stay_on_disk_and_are_found_again(self, pets, monkeypatch, tmp_path):
        folder, pixels = pets
        (folder / "cat" / "broken.png").write_text("x")
        monkeypatch.setattr(decoding, "LARGE", 1)
        monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path / "data"))
        first = load_source(folder)
        assert np.array_equal(first.inputs.numpy(), pixels.transpose(0, 3, 1, 2))
        assert len(list((tmp_path / "data" / "decoded").iterdir())) == 2
        monkeypatch.setattr(decoding, "_fill", lambda *_: pytest.fail("decoded again"))
        again = load_source(folder)
        assert torch.equal(first.inputs, again.inputs)
        assert again.remarks == first.remarks
        assert again.files == first.files
        monkeypatch.undo()
        monkeypatch.setattr(decoding, "LARGE", 1)
        monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path / "data"))
        changed = picture(folder / "cat" / "0.png", value=3)
        assert np.array_equal(load_source(folder).inputs[0].numpy(), changed.transpose(2, 0, 1))


class TestTables:
    def test_rows_keep_their_numbers_where_others_are_left_out(self, tmp_path):
        path = tmp_path / "letters.csv"
        path.write_text("text,n\nhello,1\n,2\n\ngood day,4\n")
        source = load_source(path, labelled=False)
        assert (source.inputs, source.rows) == (["hello", "good day"], (0, 3))
        assert source.part(torch.tensor([1])).rows == (3,)
        path.write_text("a,b\n1,2\n\n3,4\n")
        assert load_source(path, labelled=False).rows == (0, 2)

    def test_texts(self, tmp_path):
        path = tmp_path / "news.csv"
        path.write_text('category,text\nsport,"a goal, late"\ntech,a phone\nsport,\n')
        source = load_source(path)
        assert (source.kind, source.inputs) == ("text", ["a goal, late", "a phone"])
        assert (source.classes, source.labels.tolist()) == (("sport", "tech"), [0, 1])
        assert source.remarks == ("rows without text are left out: 2",)
        assert source.rows is None  # the others stand where they stood
        assert source.part(torch.tensor([1])).inputs == ["a phone"]

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_numbers(self, tmp_path, ending):
        frame = pandas.DataFrame({"a": [1.5, 2, 3], "b": [4, 5, 6], "y": ["no", "yes", "no"]})
        path = tmp_path / f"table.{ending}"
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        source = load_source(path)
        assert source.kind == "features"
        assert source.inputs.tolist() == [[1.5, 4], [2, 5], [3, 6]]
        assert (source.classes, source.labels.tolist()) == (("no", "yes"), [0, 1, 0])

    def test_named_columns(self, tmp_path):
        path = tmp_path / "tweets.csv"
        path.write_text("id,mood,body\n1,sad,oh\n2,glad,ah\n")
        source = load_source(path, label="mood", text="body")
        assert (source.inputs, source.classes) == (["oh", "ah"], ("glad", "sad"))
        with pytest.raises(RandomSetError, match=r"unknown label column.*wood.*id, mood, body"):
            load_source(path, label="wood")
        with pytest.raises(LabelError, match=r"no labels; got columns id, mood, body.*--label-column"):
            load_source(path)
        with pytest.raises(RandomSetError, match="not numeric; got body"):
            load_source(path, label="mood")

    def test_one_column_of_words_among_numbers_is_no_text(self, tmp_path):
        path = tmp_path / "people.csv"
        path.write_text("age,sex,label\n1,m,x\n2,f,y\n")
        with pytest.raises(RandomSetError, match="not numeric; got sex"):
            load_source(path)

    def test_columns_go_by_their_names(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text(",y,kind,x\n0,1,a,3\n1,2,b,4\n")
        source = load_source(path, label="kind", columns=["x", "y"])
        assert source.inputs.tolist() == [[3, 1], [4, 2]]
        assert source.columns == ("x", "y")
        assert source.remarks == ("an unnamed column is left out",)
        assert load_source(path, label="kind").remarks[1] == "the features are the columns y, x"
        path.write_text("y,x\n1,3\n")  # no labels, and y is no label
        new = load_source(path, label="kind", columns=["x", "y"], labelled=False)
        assert new.inputs.tolist() == [[3, 1]]
        path.write_text("y,z\n1,3\n")
        with pytest.raises(RandomSetError, match=r"lacks a column.*no x"):
            load_source(path, columns=["x", "y"], labelled=False)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("label,a\n", "empty"),
            ("", "cannot read"),
            ("a,label\n1,x\n,y\n", "column a, row 1"),
            ("a,label\n1,x\n2,\n", "missing label; got row 1"),
            ("label\nx\ny\n", "no feature columns"),
            ("label,text\nx,\ny,\n", "text column is empty"),
            ("a,b\n1,2\n3,4\n", "no labels"),
        ],
    )
    def test_what_is_wrong_is_said(self, tmp_path, content, message):
        path = tmp_path / "table.csv"
        path.write_text(content)
        with pytest.raises(RandomSetError, match=message):
            load_source(path)
        path.rename(tmp_path / "table.parquet")
        with pytest.raises(RandomSetError, match="cannot read"):
            load_source(tmp_path / "table.parquet")


class Squares(Dataset):
    """Pairs of arrays and labels, one at a time."""

    classes = ("even", "odd")

    def __len__(self):
        return 5

    def __getitem__(self, place):
        if place >= 5:
            raise IndexError
        return np.full((1, 2, 2), place, np.float32), place % 2


class TestPython:
    def test_torch(self):
        source = load_source(Squares())
        assert source.inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
        assert (source.kind, source.classes) == ("images", ("even", "odd"))
        assert source.labels.tolist() == [0, 1, 0, 1, 0]
        tensors = TensorDataset(torch.eye(4), torch.tensor([0, 1, 2, 0]))
        assert torch.equal(load_source(tensors).inputs, torch.eye(4))
        alone = load_source(TensorDataset(torch.eye(4)), labelled=False)
        assert alone.labels.tolist() == [-1] * 4

    def test_shapes_that_differ(self):
        class Ragged(Squares):
            def __getitem__(self, place):
                return np.zeros(place + 1), 0

        with pytest.raises(RandomSetError, match=r"different shapes.*\(1,\) and \(2,\)"):
            load_source(Ragged())

    def test_hugging_face_images(self):
        pixels = rng.integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
        features = datasets.Features(
            {"img": datasets.Image(), "fine_label": datasets.ClassLabel(names=["cat", "dog"])}
        )
        rows = {"img": [Image.fromarray(one) for one in pixels], "fine_label": [0, 1, 1, 0]}
        table = datasets.Dataset.from_dict(rows, features)
        source = load_source(table)
        assert np.array_equal(source.inputs.numpy(), pixels.transpose(0, 3, 1, 2))
        assert (source.classes, source.labels.tolist()) == (("cat", "dog"), [0, 1, 1, 0])
        splits = datasets.DatasetDict({"test": table})
        assert len(load_source(splits, "test")) == 4
        with pytest.raises(RandomSetError, match="unknown split; got train; expected test"):
            load_source(splits, "train")

    def test_hugging_face_texts(self):
        table = datasets.Dataset.from_dict({"text": ["a", "b"], "label": ["x", "y"], "id": [1, 2]})
        source = load_source(table)
        assert (source.kind, source.inputs, source.classes) == ("text", ["a", "b"], ("x", "y"))
        with pytest.raises(RandomSetError, match="neither images nor texts"):
            load_source(table.remove_columns("text"))

    def test_anything_else(self):
        with pytest.raises(RandomSetError, match="unsupported data source; got int"):
            load_source(3)


def test_labels_follow_the_names_of_a_network(tmp_path):
    np.savez(tmp_path / "a.npz", features=np.eye(3), labels=np.array(["dog", "cat", "dog"]))
    source = load_source(tmp_path / "a.npz")
    assert source.labels.tolist() == [1, 0, 1]
    assert source.aligned(("dog", "bird", "cat")).labels.tolist() == [0, 2, 0]
    assert source.part(torch.tensor([1])).aligned(("cat", "bird")).labels.tolist() == [0]  # no dog there
    with pytest.raises(LabelError, match="unknown class; got dog in a"):
        source.aligned(("cat", "bird"))
    sets = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 0]])
    np.savez(tmp_path / "b.npz", features=np.eye(3), labels=sets, classes=np.array(list("xyz")))
    masks = load_source(tmp_path / "b.npz").aligned(tuple("yx"))  # z never occurs
    assert masks.labels.tolist() == [[True, True], [True, False], [False, True]]


class TestLargeArrays:
    @pytest.mark.parametrize("dtype", [np.uint8, np.float32])
    def test_they_stay_on_disk(self, tmp_path, monkeypatch, dtype):
        images = rng.integers(0, 256, (6, 4, 5, 3)).astype(dtype)
        np.savez(tmp_path / "a.npz", labels=np.arange(6) % 2, images=images)
        expected = load_source(tmp_path / "a.npz").inputs
        monkeypatch.setattr(arrays, "LARGE", images.nbytes)
        found = arrays.read_arrays(tmp_path / "a.npz", ("images", "labels"))
        assert isinstance(found["images"], np.memmap)
        assert not isinstance(found["labels"], np.memmap)
        source = load_source(tmp_path / "a.npz")
        assert torch.equal(source.inputs, expected)
        assert source.inputs.dtype == expected.dtype
        np.savez_compressed(tmp_path / "b.npz", labels=np.arange(6) % 2, images=images)
        assert torch.equal(load_source(tmp_path / "b.npz").inputs, expected)

    def test_a_value_that_is_not_finite_far_inside(self, tmp_path):
        features = np.ones((50, 2), np.float32)
        features[37, 1] = np.inf
        np.savez(tmp_path / "a.npz", features=features, labels=np.arange(50) % 2)
        with pytest.raises(RandomSetError, match="sample 37"):
            load_source(tmp_path / "a.npz")


class TestFetching:
    """Hugging Face's library is real here, but for the hub itself."""

    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("RANDOMSET_DATA", str(tmp_path))
        return tmp_path

    def hub(self, monkeypatch, table):
        asked = []

        def load(address, configuration=None, split=None, verification_mode=None):
            assert verification_mode == "all_checks"
            asked.append((address, configuration, split))
            return table

        monkeypatch.setattr(datasets, "load_dataset", load)
        return asked

    def images(self, image="image", label="label", names=("a", "b"), sizes=((4, 4), (4, 4), (4, 4))):
        features = datasets.Features({image: datasets.Image(), label: datasets.ClassLabel(names=list(names))})
        pictures = [Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in sizes]
        return datasets.Dataset.from_dict({image: pictures, label: [0, 1, 1]}, features)

    def test_images_of_one_size_become_an_archive(self, folder, monkeypatch, caplog):
        asked = self.hub(monkeypatch, self.images("img"))
        caplog.set_level("INFO", logger="randomset")
        written = download("cifar10")
        assert asked == [("uoft-cs/cifar10", None, "train"), ("uoft-cs/cifar10", None, "test")]
        assert [path.name for path in written] == ["cifar10-train.npz", "cifar10-test.npz"]
        assert load_source("cifar10").classes == ("a", "b")
        assert download("cifar10") == []
        assert caplog.messages[-1] == "cifar10 test is already present."

    def test_images_of_many_sizes_stay_files(self, folder, monkeypatch):
        table = self.images(names=("wolf/dog", "ant"), sizes=((4, 4), (5, 6), (9, 3)))
        asked = self.hub(monkeypatch, table)
        source = load_source("imagenet-o", labelled=False, download=True)
        assert asked == [("cais/imagenet-o", None, "test")]
        assert source.inputs.shape == (3, 3, 64, 64)
        names = sorted(path.name for path in (folder / "imagenet-o" / "test").iterdir())
        assert names == ["ant", "classes.json", "wolf-dog"]
        labelled = load_source("imagenet-o")
        assert labelled.classes == ("wolf/dog", "ant")  # the order and the names of the authors
        assert labelled.labels.tolist() == [0, 1, 1]

    def test_texts_become_a_table(self, folder, monkeypatch):
        rows = {"text": ["x, y", "z"], "label": [0, 1], "label_text": ["sport", "tech"]}
        part = datasets.Dataset.from_dict(rows)
        self.hub(monkeypatch, datasets.DatasetDict({"train": part, "test": part}))
        download("bbc")
        source = load_source("bbc")
        assert (source.inputs, source.classes) == (["x, y", "z"], ("sport", "tech"))
        assert source.remarks == ("2 duplicate texts are left out",)
        with (folder / "bbc-text.csv").open() as file:
            assert len(list(csv.reader(file))) == 5

    def test_no_connection_leaves_nothing_behind(self, folder, monkeypatch):
        def fail(*_, **__):
            raise ConnectionError("no route to the hub")

        monkeypatch.setattr(datasets, "load_dataset", fail)
        with pytest.raises(FileFormatError, match=r"cannot download mnist.*no route to the hub"):
            download("mnist")
        with pytest.raises(FileFormatError, match=r"tweet_emotions\.csv"):
            download("emotion")
        with pytest.raises(RandomSetError, match="unknown data set"):
            download("nothing")
        assert list(folder.iterdir()) == []

    def test_every_set_can_be_had_or_says_where_from(self):
        assert set(KNOWN) == {
            *("mnist", "fashion-mnist", "kmnist", "cifar10", "cifar100", "svhn", "intel"),
            *("imagenet", "imagenet-o", "imagenette", "bbc", "emotion"),
        }
        for known in KNOWN.values():
            assert known.hub or known.torchvision or known.advice
