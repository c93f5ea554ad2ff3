// SPDX-License-Identifier: Apache-2.0
// The compiled library: errors, the notation, and what is done with memory of the host.
#include <reshard/algebra/dynamic_distribution.ipp>
#include <reshard/algebra/mesh.ipp>
#include <reshard/algebra/notation.ipp>
#include <reshard/core/error.ipp>
#include <reshard/core/large_memory.ipp>
#include <reshard/memory/convert.ipp>
#include <reshard/memory/copy.ipp>
#include <reshard/memory/fold.ipp>
#include <reshard/memory/host_memory.ipp>
