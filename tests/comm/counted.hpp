// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/counted.hpp
/// \brief  A policy of the program's own. In a header, since files that specialise templates are compiled alone.
#pragma once

#include <reshard/comm/policy.hpp>

#include <utility>

namespace reshard::test {

/// Counts agreements.
template <class C>
class Counted : public PolicyBase<Counted<C>, C> {
    using Base = PolicyBase<Counted, C>;

public:
    using Base::split;
    Counted(C inner, int& count) : Base(std::move(inner)), count_(&count) {}
    transport::Verdict agree(transport::Verdict mine) {
        ++*count_;
        return Base::agree(std::move(mine));
    }
    Counted split(int colour, int key) { return Counted(this->inner_.split(colour, key), *count_); }

private:
    int* count_;
};

}  // namespace reshard::test

template <>
inline constexpr reshard::PolicyKind reshard::policy_kind<reshard::test::Counted> = reshard::PolicyKind::observation;
