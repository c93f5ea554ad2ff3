// SPDX-License-Identifier: Apache-2.0
// The compiled library: communicators of any type, and what runs over them.
#include <reshard/comm/any_communicator.ipp>
#include <reshard/comm/communicator.ipp>
#include <reshard/comm/self.ipp>
#include <reshard/comm/streams.ipp>
#include <reshard/exec/batch.ipp>
#include <reshard/exec/boxes.ipp>
#include <reshard/exec/collectives.ipp>
#include <reshard/exec/prepare.ipp>
#include <reshard/exec/progress_thread.ipp>
#include <reshard/exec/redistribute.ipp>
#include <reshard/exec/sync.ipp>
