// SPDX-License-Identifier: Apache-2.0
// What tables have wrong, and rows that follow their ids.
#include <reshard/mch/report.ipp>
#include <reshard/mch/row_moves.ipp>
#include <reshard/mch/validate.ipp>
