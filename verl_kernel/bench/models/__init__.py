# SPDX-License-Identifier: Apache-2.0
"""Who answers: an endpoint, a vLLM server of our own behind one, or a folder of saved kernels."""
