// SPDX-License-Identifier: Apache-2.0
// Tables carried to other ranks, and the kernels that do it: in one file, so that their small steps are inlined.
#include <reshard/mch/partition.ipp>
#include <reshard/mch/redistribute.ipp>
