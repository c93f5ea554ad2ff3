// SPDX-License-Identifier: Apache-2.0
// The compiled library: distributed tensors are saved.
#include <reshard/checkpoint/save.ipp>
#include <reshard/checkpoint/save_async.ipp>
#include <reshard/checkpoint/save_options.ipp>
#include <reshard/checkpoint/save_plan.ipp>
