// SPDX-License-Identifier: Apache-2.0
// How checkpoint/coverage.hpp is done.
#pragma once

#include <reshard/algebra/box_cover.hpp>
#include <reshard/checkpoint/coverage.hpp>
#include <reshard/core/sorting.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE std::string detail::coverage_fault(Manifest const& manifest, std::size_t t,
                                                  std::span<Extent const* const> extents) {
    std::vector<Extent const*> order(extents.begin(), extents.end());
    sort_list(order, [](Extent const* a, Extent const* b) { return a->replica < b->replica; });
    auto const place = [&](Extent const& extent) {
        return quote_name(manifest.files[detail::as_size(extent.file)].leaf);
    };
    StoredTensor const& tensor = manifest.tensors[t];
    Box const whole(tensor.shape);
    std::vector<Box> boxes;
    auto at = order.begin();
    for (int replica = 0; replica < tensor.replicas; ++replica) {
        auto const who = [&] { return concat("tensor ", quote_name(tensor.name), ", replica ", replica, ": "); };
        auto const first = at;
        boxes.clear();
        for (; at != order.end() && (*at)->replica == replica; ++at) {
            boxes.push_back((*at)->box);
            if (lies_inside(boxes.back(), tensor.shape)) continue;
            return concat(who(), "box ", to_string(boxes.back()), " in ", place(**at), " lies outside its shape ",
                          to_string(tensor.shape));
        }
        if (whole.empty()) {  // nothing to hold; do not count to any number of replicas
            if (at == order.end()) break;
            replica = (*at)->replica - 1;
            continue;
        }
        CoverFault const fault = find_cover_fault(whole, boxes);
        if (fault.held == 1) continue;
        if (fault.held == 0) return concat(who(), "box ", to_string(fault.box), " is missing");
        Extent const& a = *first[static_cast<std::ptrdiff_t>(fault.a)];
        Extent const& b = *first[static_cast<std::ptrdiff_t>(fault.b)];
        return concat(who(), "box ", to_string(fault.box), " is held more than once: by ", to_string(a.box), " in ",
                      place(a), ", by ", to_string(b.box), " in ", place(b));
    }
    return {};
}

RESHARD_INLINE std::string detail::coverage_fault(Manifest const& manifest) {
    ExtentsByTensor const extents_of(manifest);
    std::string fault;
    for (std::size_t t = 0; t < manifest.tensors.size() && fault.empty(); ++t)
        fault = coverage_fault(manifest, t, extents_of(t));
    return fault;
}

RESHARD_INLINE void check_coverage(Manifest const& manifest, std::string_view file) {
    std::string const fault = detail::coverage_fault(manifest);
    if (!fault.empty()) detail::refuse_manifest(file, fault);
}

}  // namespace reshard::inline v0_1
