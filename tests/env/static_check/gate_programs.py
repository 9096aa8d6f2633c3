# SPDX-License-Identifier: Apache-2.0
"""What stands before and after a piece of source in the static gate's tests."""

HEADER = """import abc
import collections
import dataclasses
import enum
import functools
import itertools
import logging
import math
import operator
import os
import typing
import warnings
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Dict, List, Optional, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def kern(x, B: tl.constexpr):
    tl.store(x, 1.0)

def helper(x):
    return x
"""
ENTRY = """
class ModelNew(nn.Module):
    def __init__(self, a=1):
        super().__init__()

    def forward(self, x):
        return x
"""
