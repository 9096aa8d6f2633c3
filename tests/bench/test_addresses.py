# SPDX-License-Identifier: Apache-2.0
"""Addresses of endpoints: what is none is refused before a client sees it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_kernel.bench.models.choice import refuse_no_address
from verl_kernel.bench.models.endpoint import Endpoint, Sampling
from verl_kernel.errors import ConfigError


@pytest.mark.parametrize("url", ["http://a:8000/v1", "https://api.x.org/v1", "http://[::1]:80/v1", "HTTP://localhost"])
def test_addresses_pass(url):
    refuse_no_address(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8101", "without a scheme: begin it with http://"),
        ("localhost:8000/v1", "without a scheme"),
        ("", "without a scheme"),
        ("ftp://x/v1", "its scheme must be http or https"),
        ("http:///v1", "names no host or no port"),
        ("http://x:port/v1", "names no host or no port"),
        ("http://x:99999/v1", "names no host or no port"),
        ("http://[::1/v1", "names no host or no port"),
        ("http://a b/v1", "names no host or no port"),
        ("http://\u00b9/v1", "names no host or no port"),
        ("http://1.2.3.999/v1", "names no host or no port"),
    ],
)
def test_what_is_none_is_refused_with_the_remedy(url, words):
    with pytest.raises(ConfigError, match=f"--base-url is .*{words}.*as in http://127.0.0.1:8000/v1"):
        refuse_no_address(url)


PARTS = st.text(max_size=12) | st.sampled_from(["localhost", "127.0.0.1:8000", "[::1]", "a.b/v1", "x:1/v1?y#z", "@:"])


@given(scheme=st.sampled_from(["", "http://", "https://", "//", "file://"]), rest=PARTS)
async def test_the_client_takes_every_address_that_passes(scheme, rest):
    try:
        refuse_no_address(scheme + rest)
    except ConfigError:
        return
    await Endpoint(scheme + rest, "m", "k", Sampling(), own=True).close()
