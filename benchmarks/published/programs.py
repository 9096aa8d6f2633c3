# SPDX-License-Identifier: Apache-2.0
"""All programs."""

from benchmarks.published import conch, fla, gems, liger

PROGRAMS = {**liger.PROGRAMS, **conch.PROGRAMS, **gems.PROGRAMS, **fla.PROGRAMS}
