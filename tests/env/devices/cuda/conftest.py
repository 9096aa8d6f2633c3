# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's management library, made up."""

import sys
from types import SimpleNamespace

import pytest


@pytest.fixture
def nvml(monkeypatch):
    """Makes NVML's package one with these functions."""

    def pretend(**functions):
        usual = {"NVMLError": LookupError, "nvmlInit": lambda: None, "nvmlDeviceGetHandleByUUID": lambda uuid: uuid}
        monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**usual | functions))

    return pretend
