"""Tables in .csv and .parquet files."""

import pandas
import pytest
import torch

from randomset.data import load_source
from randomset.errors import LabelError, RandomSetError


def test_row_numbers_are_kept_when_rows_are_skipped(tmp_path):
    path = tmp_path / "letters.csv"
    path.write_text("text,n\nhello,1\n,2\n\ngood day,4\n")
    source = load_source(path, labelled=False)
    assert (source.inputs, source.rows) == (["hello", "good day"], (0, 3))
    assert source.part(torch.tensor([1])).rows == (3,)
    path.write_text("a,b\n1,2\n\n3,4\n")
    assert load_source(path, labelled=False).rows == (0, 2)


def test_texts(tmp_path):
    path = tmp_path / "news.csv"
    path.write_text('category,text\nsport,"a goal, late"\ntech,a phone\nsport,\n')
    source = load_source(path)
    assert (source.kind, source.inputs) == ("text", ["a goal, late", "a phone"])
    assert (source.classes, source.labels.tolist()) == (("sport", "tech"), [0, 1])
    assert source.remarks == ("rows without text are left out: 2",)
    assert source.rows is None  # the remaining rows keep their numbers
    assert source.part(torch.tensor([1])).inputs == ["a phone"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers(tmp_path, ending):
    frame = pandas.DataFrame({"a": [1.5, 2, 3], "b": [4, 5, 6], "y": ["no", "yes", "no"]})
    path = tmp_path / f"table.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    source = load_source(path)
    assert source.kind == "features"
    assert source.inputs.tolist() == [[1.5, 4], [2, 5], [3, 6]]
    assert (source.classes, source.labels.tolist()) == (("no", "yes"), [0, 1, 0])


def test_named_columns(tmp_path):
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


def test_string_column_among_numbers_is_not_text(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,sex,label\n1,m,x\n2,f,y\n")
    with pytest.raises(RandomSetError, match="not numeric; got sex"):
        load_source(path)


def test_columns_are_selected_by_name(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",y,kind,x\n0,1,a,3\n1,2,b,4\n")
    source = load_source(path, label="kind", columns=["x", "y"])
    assert source.inputs.tolist() == [[3, 1], [4, 2]]
    assert source.columns == ("x", "y")
    assert source.remarks == ("an unnamed column is left out",)
    assert load_source(path, label="kind").remarks[1] == "the features are the columns y, x"
    path.write_text("y,x\n1,3\n")  # unlabelled: y is a feature
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
def test_invalid_tables(tmp_path, content, message):
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(RandomSetError, match=message):
        load_source(path)
    path.rename(tmp_path / "table.parquet")
    with pytest.raises(RandomSetError, match="cannot read"):
        load_source(tmp_path / "table.parquet")
