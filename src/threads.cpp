// SPDX-License-Identifier: Apache-2.0
// The compiled library: ranks that are threads.
#include <reshard/comm/threads.ipp>
