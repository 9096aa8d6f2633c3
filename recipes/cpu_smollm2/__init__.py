# SPDX-License-Identifier: Apache-2.0
"""A real pretrained model for machines without a GPU: SmolLM2-135M-Instruct, with the data of recipe `cpu_smollm2`."""
