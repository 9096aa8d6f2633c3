# SPDX-License-Identifier: Apache-2.0
"""A section that finds something."""


def run(setting, findings):
    findings.fact("device", setting.device_name)
    findings.row("numbers", one=1.0, text="a | b")
    findings.check("this holds", True)
    findings.check("that does not", False, "by far")
    findings.unknown("the rest")
