"""What a docstring says about a function and its parameters, in three styles."""

import inspect

import pytest

from tenuto.runtime.program.doc_sections import read_docstring

GOOGLE = """Send a parcel.

    It leaves today: at noon.

    Args:
        to (str): Where it goes,
            in full: street and town.
        count: How many.
        **options: Ignored.

    Returns:
        number: Its number.
    """

NUMPY = """Send a parcel.

    It leaves today: at noon.

    Parameters
    ----------
    to : str
        Where it goes,
        in full: street and town.
    count : int, optional
        How many.
    a, b
        Two more.

    Returns
    -------
    number : str
        Its number.
    """

SPHINX = """Send a parcel.

    It leaves today: at noon.

    :param str to: Where it goes,
        in full: street and town.
    :param count: How many.
    :type count: int
    :raises ValueError: if there is none
    :return: Its number.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_style_says_the_same(text: str) -> None:
    found = read_docstring(text)
    assert found.description == "Send a parcel.\n\nIt leaves today: at noon."
    assert found.parameters["to"] == "Where it goes, in full: street and town."
    assert found.parameters["count"] == "How many."
    assert "number" not in found.parameters


def test_names_that_share_a_text_have_it_each() -> None:
    found = read_docstring(NUMPY).parameters
    assert (found["a"], found["b"]) == ("Two more.", "Two more.")


@pytest.mark.parametrize(
    "text",
    [
        "Call this:\n\n    one: two\n",
        "A table\n---\nof words",
        "Use :class:`Turn`.\n\n:note: not a field",
        "Ratio a:b:\n  c",
        "",
        None,
    ],
)
def test_what_is_no_section_belongs_to_the_description(text: str | None) -> None:
    found = read_docstring(text)
    assert found.description == inspect.cleandoc(text or "")
    assert found.parameters == {}


def test_a_docstring_of_sections_alone_has_no_description() -> None:
    assert read_docstring("Args:\n    n: A number.") == ("", {"n": "A number."})
