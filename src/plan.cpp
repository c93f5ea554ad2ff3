// SPDX-License-Identifier: Apache-2.0
// The compiled library: plans, and what they say of themselves.
#include <reshard/plan/box_table.ipp>
#include <reshard/plan/explain.ipp>
#include <reshard/plan/plan.ipp>
