// SPDX-License-Identifier: Apache-2.0
// The compiled library: loads that are only told, and checkpoints that are only read.
#include <reshard/checkpoint/compare_checkpoints.ipp>
#include <reshard/checkpoint/load_forecast.ipp>
#include <reshard/checkpoint/placed_tensor.ipp>
#include <reshard/checkpoint/verify_checkpoint.ipp>
