"""Framing is injective: what differs has different bytes."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from headwater.identity.framing import frame

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def same(a: object, b: object) -> bool:
    """Equality that tells 1, 1.0 and True apart, and 0.0 from -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return repr(a) == repr(b)


@given(values, values)
@settings(max_examples=300)
def test_equal_frames_mean_equal_values(a, b):
    assert (frame(a) == frame(b)) == same(a, b)


@given(st.lists(st.text(alphabet="ab", max_size=3), max_size=4).map(tuple))
@settings(max_examples=300)
def test_no_regrouping_of_the_same_letters_gives_the_same_frame(parts):
    letters = "".join(parts)
    for cut in range(len(letters) + 1):
        regrouped = (letters[:cut], letters[cut:])
        assert (frame(regrouped) == frame(parts)) == (regrouped == parts)


def test_no_frame_is_the_beginning_of_another():
    """Prefix-freeness is what lets frames stand one after another."""
    frames = [frame(v) for v in (None, True, 1, 1.0, "1", b"1", [], [1], {}, {"": 1}, "", b"")]
    assert not any(a != b and b.startswith(a) for a in frames for b in frames)


def test_the_order_of_a_mapping_does_not_count():
    assert frame({"a": 1, "b": 2}) == frame({"b": 2, "a": 1})


def test_a_lone_surrogate_is_a_text_like_any_other():
    assert frame("\ud800") != frame("\ud801")


@pytest.mark.parametrize(
    ("value", "framed"),
    [
        (None, "4e0000000000000000"),
        (True, "54000000000000000101"),
        (-7, "4900000000000000022d37"),
        (2.0, "4600000000000000084000000000000000"),
        ("é", "530000000000000002c3a9"),
        (b"\x00", "42000000000000000100"),
        (["a"], "4c000000000000000a53000000000000000161"),
        ({"a": None}, "4d00000000000000135300000000000000016" + "14e0000000000000000"),
    ],
)
def test_golden(value, framed):
    assert frame(value).hex() == framed


@pytest.mark.parametrize(
    ("value", "error"), [(float("nan"), ValueError), (object(), TypeError), ({1}, TypeError)]
)
def test_what_has_no_frame_raises(value, error):
    with pytest.raises(error):
        frame(value)
