# SPDX-License-Identifier: Apache-2.0
"""Model of the time that a GPU takes for counted work: GPU data, constants, prices of steps, ops and launches."""
