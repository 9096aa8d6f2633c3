# SPDX-License-Identifier: Apache-2.0
"""Triton's tests that cannot pass through the executor, by the beginning of their names, and why."""

LEFT_OUT = {
    # of Triton 3.7
    "test_neg_preserves_signed_zero": "Triton 3.7 compiles -x as 0 - x",
    "test_noinline_returns_tensor": "Triton 3.7 does not compile it",
    "test_load_cache_modifier[.cv]": "Triton 3.7 writes another modifier",
    # what a machine without CUDA lacks
    "test_histogram": "it reads the assembler's machine code",
    "test_no_rematerialization_op": "it asks torch for CUDA",
    "test_pointer_arguments": "it asks torch for CUDA",
    "test_zero_strided_tensors": "it asks torch for CUDA",
    "test_passing_nested_tuple_with_constexpr_and_jit_hook": "it asks torch for the number of the device",
    # what the executor finds
    "test_int_annotation": "it stores beyond its tensor",
    "test_if_call[attribute_jit]": "a warp loads what another one has stored, with no barrier between",
    # where the executor is too slow
    "test_load_store_same_ptr": "it launches 2 billion warps",
}
RACING = {
    "test_atomic_cas[int32-1-relaxed]": "its lock is relaxed, which orders nothing",
    "test_load_scope_sem_coop_grid_cta_one": "two blocks load a number and store it back",
}
"""Those that do have races."""


def reason(name, is_watched=False):
    """Why a test is left out; None if it is not."""
    rows = {**LEFT_OUT, **RACING} if is_watched else LEFT_OUT
    return next((why for begin, why in rows.items() if name.startswith(begin)), None)
