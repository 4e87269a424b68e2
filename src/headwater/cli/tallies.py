"""What a server's metrics have counted, read from the page that Prometheus scrapes."""

from __future__ import annotations

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from headwater.cli.remote import ServerTrouble

PROMPT = "headwater_prompt_tokens_total"


class Tally:
    """Sums of the counters of one tenant, and the pages of the KV pool.

    A counter that nobody has yet stands at zero.
    """

    def __init__(self, sums: Counter[str], pages: float) -> None:
        self._sums = sums
        self.pages = pages

    def __getitem__(self, name: str) -> float:
        return self._sums[name]

    @classmethod
    def read(cls, page: str, tenant: str | None) -> Tally:
        """tenant: whose counters are summed; None for everybody's. Raises ServerTrouble for a page
        that is no metrics, or none of Headwater's."""
        sums: Counter[str] = Counter()
        try:
            families = list(text_string_to_metric_families(page))
        except ValueError as error:
            raise ServerTrouble(f"/metrics is not in Prometheus' format: {error}.") from error
        for sample in (each for family in families for each in family.samples):
            if tenant is None or sample.labels.get("tenant", tenant) == tenant:
                sums[sample.name] += sample.value  # type: ignore[assignment]
        if "headwater_kv_pages" not in sums:
            raise ServerTrouble("/metrics has nothing of Headwater's KV pool.")
        return cls(sums, sums["headwater_kv_pages"])
