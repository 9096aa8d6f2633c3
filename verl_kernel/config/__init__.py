# SPDX-License-Identifier: Apache-2.0
"""Recipes and config groups, found by Hydra as `pkg://verl_kernel.config`."""
