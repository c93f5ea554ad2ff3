// SPDX-License-Identifier: Apache-2.0
// Tables, their states, and where ids are looked up.
#include <reshard/mch/names.ipp>
#include <reshard/mch/reach.ipp>
#include <reshard/mch/state.ipp>
#include <reshard/mch/table.ipp>
