# SPDX-License-Identifier: Apache-2.0
"""Figures of judged attempts: shares, intervals, comparisons. Numbers only: it knows neither models nor the gym."""
