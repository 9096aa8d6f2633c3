# SPDX-License-Identifier: Apache-2.0
"""No request that the OpenAPI description allows, or nearly allows, makes the service fail."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error

from tests.service.serving import serving
from tests.service.test_app import GYM, Pool
from verl_kernel.service.app import _ROUTES

OPERATIONS = sorted((route.path, method) for route in _ROUTES.routes for method in route.methods)
GOOD, BAD = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
CASES = [
    (path, method, mode)
    for path, method in OPERATIONS
    for mode in (GOOD, BAD)
    # A drained service accepts nothing, and where nothing is sent nothing can be wrong.
    if path != "/v1/drain" and (mode is GOOD or path not in ("/health", "/ready"))
]


@pytest.fixture(scope="module")
def description(tmp_path_factory):
    with serving(Pool(), tmp_path_factory.mktemp("schema"), GYM) as address:
        yield schemathesis.openapi.from_url(f"{address}/openapi.json")


@pytest.mark.parametrize(("path", "method", "mode"), CASES)
def test_no_request_makes_the_service_fail(description, path, method, mode):
    operation = description[path][method]

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def send(case):
        case.call_and_validate(checks=[not_a_server_error])

    send()
