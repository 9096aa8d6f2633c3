# SPDX-License-Identifier: Apache-2.0
import sys

import pytest


def test_the_former_name_is_the_same_module_with_a_warning():
    for name in [name for name in sys.modules if name.startswith("verl_kernel.scores")]:
        del sys.modules[name]
    with pytest.warns(DeprecationWarning, match="verl_kernel.figures"):
        from verl_kernel.scores.figures import FIGURES as former
    from verl_kernel.figures.figures import FIGURES

    assert former is FIGURES
