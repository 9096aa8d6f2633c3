# SPDX-License-Identifier: Apache-2.0
"""Training runs that differ in one switch, repeated over seeds, and what they show side by side."""
