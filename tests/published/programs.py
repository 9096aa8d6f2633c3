# SPDX-License-Identifier: Apache-2.0
"""All programs."""

from tests.published import (
    conch,
    conch_more,
    fla,
    fla_more,
    gems,
    gems_large,
    gems_more,
    gems_norms,
    gems_order,
    liger,
    liger_backward,
    liger_losses,
    liger_more,
)

PROGRAMS = [
    *liger.PROGRAMS,
    *liger_losses.PROGRAMS,
    *liger_backward.PROGRAMS,
    *liger_more.PROGRAMS,
    *conch.PROGRAMS,
    *conch_more.PROGRAMS,
    *gems.PROGRAMS,
    *gems_more.PROGRAMS,
    *gems_order.PROGRAMS,
    *gems_norms.PROGRAMS,
    *gems_large.PROGRAMS,
    *fla.PROGRAMS,
    *fla_more.PROGRAMS,
]
