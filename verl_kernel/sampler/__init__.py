# SPDX-License-Identifier: Apache-2.0
"""Replay buffers for verl's `trainer.v1.sampler.custom_sampler`."""
