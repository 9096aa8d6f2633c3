# SPDX-License-Identifier: Apache-2.0
"""What a GPU takes for counted work: its data, the constants of the model, prices of steps, ops and launches."""
