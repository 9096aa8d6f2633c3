# SPDX-License-Identifier: Apache-2.0
"""The sources of answers: an endpoint, a vLLM server that we start, or a folder of saved kernels."""
