# SPDX-License-Identifier: Apache-2.0
"""A section that fails after its first finding."""


def run(setting, findings):
    findings.row("numbers", one=1)
    raise RuntimeError("the driver said no")
