# SPDX-License-Identifier: Apache-2.0
"""Reinforce-Ada: how many rollouts a prompt gets, and which of them are trained on."""
