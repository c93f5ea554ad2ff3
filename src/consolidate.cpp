// SPDX-License-Identifier: Apache-2.0
// The compiled library: files of one form become files of another.
#include <reshard/checkpoint/consolidate.ipp>
#include <reshard/checkpoint/consolidate_plan.ipp>
