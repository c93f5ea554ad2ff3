// SPDX-License-Identifier: Apache-2.0
// The compiled library: what the headers of core, algebra, memory, plan, comm and exec leave to their .ipp files.
#include <reshard/algebra/notation.ipp>
#include <reshard/comm/any_communicator.ipp>
#include <reshard/comm/communicator.ipp>
#include <reshard/comm/self.ipp>
#include <reshard/core/error.ipp>
#include <reshard/exec/batch.ipp>
#include <reshard/exec/prepare.ipp>
#include <reshard/exec/redistribute.ipp>
#include <reshard/exec/sync.ipp>
#include <reshard/memory/convert.ipp>
#include <reshard/memory/copy.ipp>
#include <reshard/memory/fold.ipp>
#include <reshard/memory/host_memory.ipp>
#include <reshard/memory/stream_copy.ipp>
#include <reshard/plan/explain.ipp>
#include <reshard/plan/plan.ipp>
