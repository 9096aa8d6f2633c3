# SPDX-License-Identifier: Apache-2.0
import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Chains are tried on a few hundred numbers: a second thread costs more than it does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
