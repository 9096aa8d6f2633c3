# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in tests."""

import signal


def hears_interrupts() -> None:
    """For a new process: a shell's background jobs ignore interrupts, and so do their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
