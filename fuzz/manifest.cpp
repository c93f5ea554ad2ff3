// SPDX-License-Identifier: Apache-2.0
// reshard.manifest.json: what is read can be written and read again, and asked whether it covers its tensors.
#include <reshard/checkpoint/coverage.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>

#include "support.hpp"

void fuzz::manifest(std::uint8_t const* data, std::size_t size) {
    using namespace reshard;
    Manifest manifest;
    if (!fuzz::answers([&] { manifest = manifest_from(fuzz::text_of(data, size), "manifest"); })) return;
    fuzz::expect(manifest_from(to_json(manifest), "manifest") == manifest, "a manifest that changes when written");
    fuzz::answers([&] { check_coverage(manifest, "manifest"); });
}
