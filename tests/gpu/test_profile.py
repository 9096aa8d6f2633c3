# SPDX-License-Identifier: Apache-2.0
"""Predicted times of kernels stand beside the times that the GPU takes."""

import re
import subprocess
import sys

from .programs import HONEST, REFERENCE


def test_measured_times_stand_beside_predicted_ones(tmp_path):
    for name, text in (("reference.py", REFERENCE), ("honest.py", HONEST)):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "verl_kernel", "profile", "reference.py", "honest.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = re.search(r"forward ([\d.,]+) us \(measured ([\d.,]+) us\)", done.stdout)
    assert found, done.stdout
    predicted, measured = (float(text.replace(",", "")) for text in found.groups())
    assert 0.5 < predicted / measured < 2
