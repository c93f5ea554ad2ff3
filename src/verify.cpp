// SPDX-License-Identifier: Apache-2.0
// The compiled library: copies that ought to be equal.
#include <reshard/checkpoint/replica_report.ipp>
#include <reshard/checkpoint/verify_replicas.ipp>
