from __future__ import annotations

import random

import pytest

from headwater.engine.stop_strings import StopStrings


def shown(stops, parts):
    """What is shown piece by piece, until the stop or the end."""
    watch = StopStrings(stops)
    out = []
    for part in parts:
        out.append(watch.push(part))
        if watch.found:
            return out, True
    return [*out, watch.flush()], False


def test_without_stop_strings_everything_passes():
    assert shown([], ["a", "b"]) == (["a", "b", ""], False)


def test_text_before_the_stop_is_shown_and_the_stop_is_not():
    assert shown(["END"], ["one END two"]) == (["one "], True)


def test_a_stop_string_across_pieces_is_never_shown():
    assert shown(["END"], ["one E", "N", "D two"]) == (["one ", "", ""], True)


def test_what_only_looked_like_a_stop_is_shown_later():
    assert shown(["END"], ["E", "NE", "NT", "."]) == (["", "EN", "ENT", ".", ""], False)


def test_the_end_of_the_answer_shows_what_was_held():
    assert shown(["\n\n"], ["a\n"]) == (["a", "\n"], False)


def test_the_earliest_of_several_stops_counts():
    assert shown(["world", "lo"], ["hello world"]) == (["hel"], True)


@pytest.mark.parametrize("seed", range(200))
def test_any_split_shows_what_the_whole_text_would(seed):
    draw = random.Random(seed)
    text = "".join(draw.choices("ab", k=draw.randint(0, 30)))
    stops = ["".join(draw.choices("ab", k=draw.randint(1, 5))) for _ in range(draw.randint(1, 3))]
    parts, at = [], 0
    while at < len(text):
        size = draw.randint(1, 3)
        parts.append(text[at : at + size])
        at += size
    out, stopped = shown(stops, parts)
    assert stopped == any(stop in text for stop in stops)
    # A stop is noticed with its last character: of what has been said by then the earliest counts.
    said = "".join(parts[: len(out)]) if stopped else text
    begins = [said.find(stop) for stop in stops if stop in said]
    assert "".join(out) == (said[: min(begins)] if stopped else text)
