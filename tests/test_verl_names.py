# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import pytest

from verl_kernel.errors import RegistrationError
from verl_kernel.verl_names import append_messages


@pytest.mark.parametrize("name", ["ct_merge_context_msg", "ct_merge_non_assistant_msg"])
def test_messages_are_appended_by_the_method_that_is_there(name: str) -> None:
    assert append_messages(SimpleNamespace(**{name: "the method"})) == "the method"


def test_the_name_of_the_supported_release_comes_first() -> None:
    both = SimpleNamespace(ct_merge_non_assistant_msg="other", ct_merge_context_msg="supported")
    assert append_messages(both) == "supported"


def test_a_verl_without_such_a_method_is_refused_in_a_sentence() -> None:
    with pytest.raises(RegistrationError, match=r"no ct_merge_context_msg or .*install the verl that verl-kernel asks"):
        append_messages(SimpleNamespace())
