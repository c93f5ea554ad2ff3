// SPDX-License-Identifier: Apache-2.0
// Tables in files.
#include <reshard/mch/checkpoint.ipp>
#include <reshard/mch/checkpoint_save.ipp>
