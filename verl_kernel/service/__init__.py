# SPDX-License-Identifier: Apache-2.0
"""The gym as a service over HTTP (`verl-kernel serve`): judges on other machines than those that train or evaluate.

A request is recorded before it is accepted, so that accepted work survives the end of this process (`record`). Each API
key has a namespace of its own (`keys`). Nothing that a client sends is unpickled or executed outside of a judge.
"""
