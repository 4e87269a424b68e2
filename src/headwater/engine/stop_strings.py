"""Stop strings: text at which an answer ends, wherever the borders of its tokens lie."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Watches one answer's text.

        shown already | held: could be the beginning of a stop string | what comes next

    The stop string itself is never shown, so text that may turn out to be its beginning waits
    until it is known not to be.
    """

    __slots__ = ("_held", "_stops", "found")

    def __init__(self, stops: Sequence[str]) -> None:
        """stops: none of them empty."""
        self._stops = stops
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """Take new text; what may be shown of it. `found` says that the answer ends there."""
        if not self._stops:
            return text
        text = self._held + text
        begins = [at for at in map(text.find, self._stops) if at >= 0]
        if begins:
            self.found = True
            self._held = ""
            return text[: min(begins)]
        keep = len(text) - self._beginning(text)
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """What was held back, when the answer ends for another reason."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """How many characters at the end of `text` could begin a stop string."""
        return max(_begun(stop, text) for stop in self._stops)


def _begun(stop: str, text: str) -> int:
    """How many characters at the end of `text` could begin this one, which is not in it whole."""
    at = text.find(stop[0], max(len(text) - len(stop) + 1, 0))
    while at >= 0 and not stop.startswith(text[at:]):
        at = text.find(stop[0], at + 1)
    return len(text) - at if at >= 0 else 0
