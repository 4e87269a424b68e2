"""Whatever the schema allows, and much that it does not: no request is a fault of the server."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from tests.server.live import ADMIN, TENANTS, Live, wait_until

EXAMPLES = 25
"""An operation."""

LEFT_OUT = ("/v1/admin/drain", "/v1/admin/weights")  # they would end what is tested


@pytest.fixture(scope="module")
def fuzzed(models):
    """A server for an admin, whose answers are short."""
    live = Live(models["parrot"], tenants=TENANTS, context=96, kv_memory="64 pages", deadline=5)
    yield live
    live.close()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_is_a_fault_of_the_server(fuzzed, mode):
    schema = schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")
    seen = set()
    for found in schema.exclude(path=list(LEFT_OUT)).get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not operation.body:
            continue  # there is nothing to get wrong
        seen.add(operation.path)

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def answers(case):
            key = {"Authorization": f"Bearer {ADMIN}"}
            case.call_and_validate(checks=[not_a_server_error], headers=key)

        answers()
    assert {"/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/cache/pin"} <= seen
    assert fuzzed.hw.healthy
    wait_until(lambda: fuzzed.is_idle)
