# SPDX-License-Identifier: Apache-2.0
"""Many judges behind one interface: `LocalPool` on this machine, `KernelGym` on a Ray cluster.

Both repeat an evaluation once when a judge, not the candidate, has failed, if possible on another judge; after that
they return `infra_error`. Both raise TaskError for an unusable reference. Time limits start when a judge takes the job.
"""
