# SPDX-License-Identifier: Apache-2.0
"""The form of the datasets that verl reads."""
