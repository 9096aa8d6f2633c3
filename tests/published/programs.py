# SPDX-License-Identifier: Apache-2.0
"""All programs."""

from tests.published import conch, fla, gems, gems_more, gems_order, liger, liger_losses

PROGRAMS = [
    *liger.PROGRAMS,
    *liger_losses.PROGRAMS,
    *conch.PROGRAMS,
    *gems.PROGRAMS,
    *gems_more.PROGRAMS,
    *gems_order.PROGRAMS,
    *fla.PROGRAMS,
]
