# SPDX-License-Identifier: Apache-2.0
"""Figures of judged attempts: shares, intervals, comparisons. It handles numbers only and knows neither models nor gym."""
