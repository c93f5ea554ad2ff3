// SPDX-License-Identifier: Apache-2.0
// The compiled library: ranks that are threads, and teams of them.
#include <reshard/comm/threads.ipp>
#include <reshard/mch/workers.ipp>
