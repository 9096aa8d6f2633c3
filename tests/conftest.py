# SPDX-License-Identifier: Apache-2.0
"""Settings that every test shares."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no failure, and the suite's budget is shared by all property tests.
settings.register_profile("suite", deadline=None, max_examples=60)
settings.load_profile("suite")
