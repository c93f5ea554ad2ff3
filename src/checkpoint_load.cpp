// SPDX-License-Identifier: Apache-2.0
// The compiled library: checkpoints are loaded.
#include <reshard/checkpoint/load.ipp>
#include <reshard/checkpoint/load_strategy.ipp>
