# SPDX-License-Identifier: Apache-2.0
"""Many judges behind one interface: `LocalPool` on this machine, `KernelGym` on a Ray cluster.

Both retry an evaluation that failed for reasons of ours once, on another judge if there is one, and then return
`infra_error`; both raise TaskError for a reference that cannot serve. A deadline starts when a judge takes the job.
"""
