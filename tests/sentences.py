# SPDX-License-Identifier: Apache-2.0
"""Refusals, each of which is one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from verl_kernel.errors import VerlKernelError


@contextmanager
def refused(*words: object, by: type[Exception] = VerlKernelError, start: str = "") -> Iterator[None]:
    """The block ends in an error whose one sentence begins so and holds these words."""
    with pytest.raises(by) as caught:
        yield
    sentence = str(caught.value)
    assert "\n" not in sentence, sentence
    assert sentence.startswith(start), sentence
    assert [word for word in words if str(word) not in sentence] == [], sentence
