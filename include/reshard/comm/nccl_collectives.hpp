// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/nccl_collectives.hpp
/// \brief  NCCL's own all_gather, all_reduce and reduce_scatter, for who asks for them: equal counts on every rank.
/// \depends comm/nccl.hpp, core/reduce.hpp.
///
/// Plans fold in the order of the ranks, so that the bits of a sum are the same for every transport and world size.
/// NCCL folds in the order that suits its rings and trees, and is faster for it. To call a reduction here is to give
/// that order up, which any_order says in the call. All are collective, and wait: for the communicator's deadline.
#pragma once

#include <reshard/comm/nccl.hpp>
#include <reshard/core/reduce.hpp>

namespace reshard::inline v0_1 {

/// Whoever passes it takes sums as they come: their last bits may change with the number of ranks, and with NCCL.
struct AnyOrder {};
inline constexpr AnyOrder any_order{};

namespace detail {

/// Throws DTypeError for types that NCCL cannot fold.
[[nodiscard]] inline ncclDataType_t nccl_type(DType dtype, std::string_view operation) {
    constexpr std::pair<DType, ncclDataType_t> types[] = {
        {DType::i8, ncclInt8},     {DType::u8, ncclUint8},    {DType::i32, ncclInt32},   {DType::u32, ncclUint32},
        {DType::i64, ncclInt64},   {DType::u64, ncclUint64},  {DType::f16, ncclFloat16}, {DType::bf16, ncclBfloat16},
        {DType::f32, ncclFloat32}, {DType::f64, ncclFloat64},
    };
    for (auto const& [ours, theirs] : types)
        if (ours == dtype) return theirs;
    raise(ErrorCode::dtype, "reshard::", operation, ": NCCL does not fold elements of ", enums::name(dtype),
          ". Fix: let a plan fold them.");
}
[[nodiscard]] inline ncclRedOp_t nccl_fold(Reduce op, DType dtype, std::string_view operation) {
    constexpr std::pair<Reduce, ncclRedOp_t> ops[] = {{Reduce::sum, ncclSum},
                                                      {Reduce::avg, ncclAvg},
                                                      {Reduce::min, ncclMin},
                                                      {Reduce::max, ncclMax},
                                                      {Reduce::product, ncclProd}};
    for (auto const& [ours, theirs] : ops)
        if (ours == op && supports(op, dtype)) return theirs;
    raise(ErrorCode::dtype, "reshard::", operation, ": NCCL does not fold ", enums::name(dtype), " by ",
          enums::name(op), ". Fix: let a plan fold them.");
}

/// What start(native, stream) does of NCCL; in a group of one, which has nobody to ask, a copy. Throws BufferError,
/// before anything moves; the caller calls it on every rank alike.
template <class Copies, class Start>
void run_natively(BasicNcclCommunicator<Copies>& comm, void const* from, void* to, Index elements, Index element_bytes,
                  std::string_view operation, std::string_view call, Start const& start) {
    if (elements < 0)
        raise(ErrorCode::buffer, "reshard::", operation, ": ", elements, " elements. Fix: check the count.");
    for (void const* memory : {from, static_cast<void const*>(to)})
        if (elements != 0) comm.check_memory(memory);
    comm.run_native(call, [&](ncclComm_t native, cudaStream_t stream) {
        if (native != nullptr) return start(native, stream);
        if (from != to && elements != 0)
            cuda_check(cudaMemcpyAsync(to, from, as_size(elements * element_bytes), cudaMemcpyDefault, stream),
                       "cudaMemcpyAsync");
        return ncclSuccess;
    });
}

/// ncclAllReduce and ncclReduceScatter.
using NcclReduction = ncclResult_t (*)(void const* from, void* to, std::size_t elements, ncclDataType_t type,
                                       ncclRedOp_t fold, ncclComm_t comm, cudaStream_t stream);
template <class Copies>
void reduce_natively(BasicNcclCommunicator<Copies>& comm, void const* from, void* to, Index elements, DType dtype,
                     Reduce op, std::string_view operation, std::string_view call, NcclReduction reduction) {
    ncclDataType_t const type = nccl_type(dtype, operation);
    ncclRedOp_t const fold = nccl_fold(op, dtype, operation);
    run_natively(comm, from, to, elements, bytes(dtype), operation, call, [&](ncclComm_t native, cudaStream_t stream) {
        return reduction(from, to, as_size(elements), type, fold, native, stream);
    });
}

}  // namespace detail

/// `bytes` bytes of every rank, in rank order, into `all` of every rank, which holds comm.size() times as many.
/// Throws BufferError on the rank whose memory is not of its device: agree on buffers first.
template <class Copies>
void native_all_gather(BasicNcclCommunicator<Copies>& comm, void const* mine, Index bytes, void* all) {
    detail::run_natively(comm, mine, all, bytes, 1, "native_all_gather", "ncclAllGather",
                         [&](ncclComm_t native, cudaStream_t stream) {
                             return ncclAllGather(mine, all, detail::as_size(bytes), ncclInt8, native, stream);
                         });
}

/// Element k of `to`, on every rank, becomes the fold of elements k of `from` of all ranks. `from` may be `to`.
/// Throws DTypeError for what NCCL cannot fold: complex numbers, booleans, 16-bit integers, bits.
template <class Copies>
void native_all_reduce(BasicNcclCommunicator<Copies>& comm, void const* from, void* to, Index elements, DType dtype,
                       Reduce op, AnyOrder) {
    detail::reduce_natively(comm, from, to, elements, dtype, op, "native_all_reduce", "ncclAllReduce", ncclAllReduce);
}

/// `from` holds comm.size() blocks of `elements`; `to` of rank r becomes the fold of blocks r of all ranks.
template <class Copies>
void native_reduce_scatter(BasicNcclCommunicator<Copies>& comm, void const* from, void* to, Index elements, DType dtype,
                           Reduce op, AnyOrder) {
    detail::reduce_natively(comm, from, to, elements, dtype, op, "native_reduce_scatter", "ncclReduceScatter",
                            ncclReduceScatter);
}

}  // namespace reshard::inline v0_1
