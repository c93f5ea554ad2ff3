// SPDX-License-Identifier: Apache-2.0
// The compiled library: safetensors files, and what a checkpoint consists of.
#include <reshard/checkpoint/catalogue.ipp>
#include <reshard/checkpoint/checkpoint.ipp>
#include <reshard/checkpoint/checksum.ipp>
#include <reshard/checkpoint/coverage.ipp>
#include <reshard/checkpoint/json_tree.ipp>
#include <reshard/checkpoint/remove_checkpoint.ipp>
#include <reshard/checkpoint/safetensors.ipp>
#include <reshard/checkpoint/safetensors_header.ipp>
#include <reshard/checkpoint/safetensors_layout.ipp>
#include <reshard/checkpoint/safetensors_writer.ipp>
#include <reshard/checkpoint/tensor_info.ipp>
