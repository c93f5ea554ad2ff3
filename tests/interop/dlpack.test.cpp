// SPDX-License-Identifier: Apache-2.0
#include <reshard/interop/dlpack.hpp>

#include <reshard/core/tensor.hpp>

#include <support/dlpack_types.hpp>

#include <doctest/doctest.h>

#include <vector>

using namespace reshard;

namespace {

static_assert(dlpack::Managed<DLManagedTensor> && !dlpack::Versioned<DLManagedTensor>);
static_assert(dlpack::Versioned<DLManagedTensorVersioned>);

struct Sample {
    float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    Index shape[2] = {2, 3};
    Index strides[2] = {4, 1};
    DLTensor tensor{data, {kDLCPU, 0}, 2, {2, 32, 1}, shape, strides, 4};
};

template <class E, class F>
void refused(F&& call, char const* words) {
    CAPTURE(words);
    try {
        call();
        FAIL("not refused");
    } catch (E const& error) {
        CHECK_MESSAGE(error.message().find(words) != std::string::npos, error.message());
        CHECK(error.message().find("Fix: ") != std::string::npos);
    }
}

}  // namespace

TEST_CASE("a DLTensor is a view of the same memory: strides, offset, and none for row-major") {
    Sample sample;
    auto const view = dlpack::view<float>(sample.tensor);
    CHECK(view.data() == sample.data + 1);
    CHECK(view(1, 2) == 7);
    sample.tensor.strides = nullptr;
    CHECK(dlpack::view<float>(sample.tensor)(1, 2) == 6);
    CHECK(dlpack::view(sample.tensor).dtype() == DType::f32);
    sample.tensor.ndim = 0;
    sample.tensor.shape = nullptr;
    CHECK(dlpack::view<float const>(sample.tensor)() == 1);
    sample.shape[0] = 0;
    sample.tensor = {nullptr, {kDLCPU, 0}, 1, {2, 32, 1}, sample.shape, nullptr, 0};
    CHECK(dlpack::view(sample.tensor).size() == 0);
}

TEST_CASE("what a view cannot be is refused by name") {
    Sample sample;
    refused<DTypeError>([&] { static_cast<void>(dlpack::view<double>(sample.tensor)); },
                        "is F32, the view asked for is of F64");
    sample.tensor.dtype.lanes = 4;
    refused<DTypeError>([&] { static_cast<void>(dlpack::view(sample.tensor)); }, "type code 2, 32 bits, 4 lanes");
    sample.tensor.dtype = {17, 4, 1};
    refused<DTypeError>([&] { static_cast<void>(dlpack::view(sample.tensor)); }, "type code 17, 4 bits");
    sample.tensor.dtype = {2, 32, 1};
    sample.tensor.ndim = max_dims + 1;
    refused<ShapeError>([&] { static_cast<void>(dlpack::view(sample.tensor)); }, "dimensions given");
    sample.tensor.ndim = 2;
    for (Index const step : {INT64_MAX, INT64_MIN, Index{1} << 61, -(Index{1} << 61)}) {
        sample.strides[0] = step;
        refused<ShapeError>([&] { static_cast<void>(dlpack::view(sample.tensor)); }, "reaches beyond 64 bits");
        for (Index const few : {0, 1}) {  // then it is no step
            sample.shape[0] = few;
            CHECK(dlpack::view(sample.tensor).size() == 3 * few);
            CHECK(dlpack::view(sample.tensor).stride(0) == 1);  // plans multiply strides by bytes
        }
        sample.shape[0] = 2;
    }
    sample.strides[0] = -(Index{1} << 60);
    CHECK(dlpack::view(sample.tensor).size() == 6);
    sample.tensor.byte_offset = 1;
    CHECK(dlpack::view(sample.tensor).size() == 6);  // bytes may lie anywhere
    refused<BufferError>([&] { static_cast<void>(dlpack::view<float>(sample.tensor)); }, "not aligned");
    sample.tensor.data = nullptr;
    refused<BufferError>([&] { static_cast<void>(dlpack::view(sample.tensor)); }, "[2,3] has no memory");
}

TEST_CASE("memory of a device is viewed by who names the device") {
    Sample sample;
    sample.tensor.device = {kDLCUDA, 1};
    CHECK(dlpack::device_of(sample.tensor) == dlpack::cuda(1));
    refused<BufferError>([&] { static_cast<void>(dlpack::view(sample.tensor)); }, "lies on device (2, 1)");
    refused<BufferError>([&] { static_cast<void>(dlpack::view(sample.tensor, dlpack::cuda(0))); },
                         "asked for is of (2, 0)");
    CHECK(dlpack::view<float>(sample.tensor, dlpack::cuda(1)).data() == sample.data + 1);
    sample.tensor.device = {kDLCUDAHost, 0};
    CHECK(dlpack::view(sample.tensor).size() == 6);
}

TEST_CASE("read-only tensors are viewed as const, and those of a later DLPack not at all") {
    Sample sample;
    DLManagedTensorVersioned managed{{1, 1}, nullptr, nullptr, 1, sample.tensor};
    refused<BufferError>([&] { static_cast<void>(dlpack::view(managed)); }, "read-only");
    refused<BufferError>([&] { static_cast<void>(dlpack::view<float>(managed)); }, "read-only");
    CHECK(dlpack::const_view(managed).size() == 6);
    CHECK(dlpack::view<float const>(managed)(0, 0) == 1);
    managed.flags = 2;
    CHECK(dlpack::view<float>(managed).size() == 6);
    managed.version = {2, 0};
    refused<FormatError>([&] { static_cast<void>(dlpack::view(managed)); }, "DLPack 2.0");
    refused<FormatError>([&] { static_cast<void>(dlpack::const_view(managed)); }, "DLPack 2.0");
    DLManagedTensor const old{sample.tensor, nullptr, nullptr};
    CHECK(dlpack::view<float>(old)(1, 0) == 5);
}

TEST_CASE("each element type of whole bytes comes back from DLPack as itself") {
    std::vector<std::byte> memory(64);
    for (int i = 0; i < dtype_count; ++i) {
        auto const dtype = static_cast<DType>(i);
        CAPTURE(name(dtype));
        DynamicView const view(memory.data(), dtype, Shape{2, 3});
        if (!is_byte_sized(dtype)) {
            refused<DTypeError>([&] { static_cast<void>(dlpack::share<DLManagedTensor>(view, 0)); }, "have no address");
            continue;
        }
        auto const managed = dlpack::share<DLManagedTensorVersioned>(view, 0);
        CHECK(managed->dl_tensor.dtype.bits == bits(dtype));
        CHECK(dlpack::view(*managed).dtype() == dtype);
    }
    // As dlpack.h numbers them.
    auto const code = [&](DType dtype) {
        return int{
            dlpack::share<DLManagedTensor>(DynamicView(memory.data(), dtype, Shape{1}), 0)->dl_tensor.dtype.code};
    };
    CHECK(code(DType::i64) == 0);
    CHECK(code(DType::u8) == 1);
    CHECK(code(DType::f16) == 2);
    CHECK(code(DType::bf16) == 4);
    CHECK(code(DType::c64) == 5);
    CHECK(code(DType::boolean) == 6);
    CHECK(code(DType::f8_e4m3) == 10);
    CHECK(code(DType::f8_e4m3fnuz) == 11);
    CHECK(code(DType::f8_e5m2) == 12);
    CHECK(code(DType::f8_e5m2fnuz) == 13);
    CHECK(code(DType::f8_e8m0) == 14);
}

TEST_CASE("what is shared keeps its owner until the consumer has done, and says whether it may be written to") {
    auto owner = std::make_shared<std::vector<float>>(6, 1.0F);
    TensorView<float> const view(owner->data(), Shape{3, 2}, Shape{1, 3}.extents());
    auto managed = dlpack::share<DLManagedTensorVersioned>(view, owner, dlpack::cuda(3));
    CHECK(owner.use_count() == 2);
    CHECK(managed->flags == 0);
    CHECK(managed->version.major == 1);
    CHECK(managed->dl_tensor.device.device_id == 3);
    CHECK(dlpack::view(*managed, dlpack::cuda(3)).strides() == view.strides());
    managed->deleter(managed.release());  // as the consumer of a capsule does
    CHECK(owner.use_count() == 1);
    TensorView<float const> const fixed = view;
    CHECK(dlpack::share<DLManagedTensorVersioned>(fixed, owner)->flags == 1);
    CHECK(owner.use_count() == 1);

    Tensor<float> tensor(Shape{4});
    tensor(2) = 5;
    auto const moved = dlpack::share<DLManagedTensor>(tensor.view(), std::move(tensor));
    CHECK(dlpack::view<float>(*moved)(2) == 5);
}
