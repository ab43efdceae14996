import pytest

from randomset.errors import RandomSetError
from reproduction import exhibit, exhibits


def test_every_table_and_figure_with_numbers_is_there():
    ids = {item.id for item in exhibits()}
    tables = set(range(1, 20)) - {5}  # Table 5 lists hyperparameters
    figures = {2, 4, *range(6, 29)}  # the others are drawings
    assert ids == {f"table-{n}" for n in tables} | {f"figure-{n}" for n in figures}


def test_order_is_that_of_the_paper():
    ids = [item.id for item in exhibits()]
    assert ids[:3] == ["table-1", "table-2", "table-3"]
    assert ids.index("table-19") < ids.index("figure-2") < ids.index("figure-10")


def test_unknown_id():
    with pytest.raises(RandomSetError, match="unknown table or figure; got table-5"):
        exhibit("table-5")
