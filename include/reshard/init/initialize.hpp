// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/init/initialize.hpp
/// \brief  Every rank fills its own part of a tensor, and the whole is the same for every mesh, placement and world.
/// \depends init/initializer, init/detail; plan, memory. Opt-in: not part of the umbrella. No communicator to pass.
///
///     initialize(tensor, rank, 42, xavier_uniform(tensor));
///
/// The contract (a change of any of it is a change of everybody's weights): a value depends on the seed, the tensor's
/// name, its own row-major index in the whole tensor, the element type and the initializer, and on nothing else.
///
///     words     Philox4x32-10; the key is the seed; the counter's lower half is index / 4 (of doubles, index / 2), its
///               upper half FNV-1a, 64 bits, of the name's bytes; word index % 4 (words 2 (index % 2) and the next)
///     values    as in init/detail/random_values.hpp: a uniform value is low + u (high - low), a normal one comes from
///               the inverse of the distribution function, so that one word (two) makes one value
///     types     F32, BF16 and F16 are computed alike: the 16-bit ones are the F32 values, rounded once to nearest even
///               (and kept within the bounds, where there are any); F64 is computed in double
///
/// The bits are the same on all machines and compilers that keep to IEEE 754: only its correctly rounded operations
/// are used, and contraction to fused operations cannot change them (init/detail/normal_quantile.hpp). -ffast-math does
/// not compile. Doubles need fma: where the compiler's target has none it is a call, several times slower.
///
/// A Partial axis holds what plan(R, P) leaves: the values at coordinate 0 and the identity of the op elsewhere; where
/// the op is idempotent (min, max), the values everywhere.
#pragma once

#include <reshard/core/detail/explain_text.hpp>
#include <reshard/core/view_box.hpp>
#include <reshard/init/detail/global_runs.hpp>
#include <reshard/init/detail/random_values.hpp>
#include <reshard/memory/convert.hpp>
#include <reshard/memory/fold.hpp>
#include <reshard/plan/plan.hpp>

#include <cmath>  // fabs
#include <span>   // span

namespace reshard::inline v0_1 {

/// The stream of random words that belongs to a tensor's name: FNV-1a, 64 bits.
[[nodiscard]] constexpr std::uint64_t name_stream(std::string_view name) noexcept {
    std::uint64_t state = 0xcbf29ce484222325U;
    for (char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return state;
}

namespace detail {

template <class Body>
void with_float(DType dtype, Body&& body) {
    switch (dtype) {
        case DType::f16: return body.template operator()<Float16>();
        case DType::bf16: return body.template operator()<BFloat16>();
        case DType::f32: return body.template operator()<float>();
        case DType::f64: return body.template operator()<double>();
        default: return;
    }
}

template <class... Parts>
[[noreturn]] void refuse_initializer(std::string_view tensor, Parts const&... parts) {
    raise(ErrorCode::dtype, "reshard::initialize: tensor '", tensor, "': ", parts...);
}

/// What can be wrong with the numbers of an initializer, for a tensor of floats T.
template <class T>
class InitializerCheck {
public:
    explicit InitializerCheck(std::string_view tensor) : tensor_(tensor) {}

    void operator()(Uniform const& uniform) const {
        require_bounds(uniform.low, uniform.high, ")");
        bool const within = uniform.low >= -largest() && uniform.high <= largest() &&
                            uniform.high - uniform.low <= largest_number<Computed<T>>();
        if (!within) {
            refuse(interval(uniform.low, uniform.high, ")"), " is beyond ", dtype,
                   ". Fix: choose bounds that it can hold.");
        }
        require_number(least_from<T>(uniform.low), greatest_below<T>(uniform.high), uniform.low, uniform.high, ")");
    }
    void operator()(Normal const& normal) const {
        require_deviation(normal.mean, normal.deviation, normal.deviation >= 0.0);
        // No value is further from the mean than ten deviations.
        if (std::fabs(normal.mean) + 10.0 * normal.deviation <= largest()) return;
        refuse(bell(normal.mean, normal.deviation), " has values beyond ", dtype,
               ". Fix: choose a type that holds them, or TruncatedNormal.");
    }
    void operator()(TruncatedNormal const& normal) const {
        require_deviation(normal.mean, normal.deviation, normal.deviation > 0.0);
        require_bounds(normal.low, normal.high, "]");
        require_number(least_from<T>(normal.low), greatest_to<T>(normal.high), normal.low, normal.high, "]");
        if (!RandomValues<T, TruncatedNormal>(normal).has_mass()) {
            refuse(interval(normal.low, normal.high, "]"), " is more than 37 deviations from the mean. ",
                   "Fix: choose bounds that values are near to.");
        }
        // No value is further from the mean, or from a bound behind it, than ten deviations.
        double const reach = 10.0 * normal.deviation;
        double const least = larger(normal.low, smaller(normal.mean, normal.high) - reach);
        double const most = smaller(normal.high, larger(normal.mean, normal.low) + reach);
        if (least >= -largest() && most <= largest()) return;
        refuse(bell(normal.mean, normal.deviation), " within ", interval(normal.low, normal.high, "]"),
               " has values beyond ", dtype, ". Fix: choose a type that holds them, or bounds that it can hold.");
    }
    void operator()(Constant const& constant) const {
        double const size = std::fabs(constant.value);
        if (size <= largest() || size - size != 0.0) return;
        refuse(number_text(constant.value, 9), " is beyond ", dtype, ". Fix: choose a type that holds it.");
    }

private:
    static constexpr std::string_view dtype = name(dtype_of<T>);

    template <class... Parts>
    [[noreturn]] void refuse(Parts const&... parts) const {
        refuse_initializer(tensor_, parts...);
    }
    [[nodiscard]] static double largest() noexcept { return largest_number<T>(); }
    [[nodiscard]] static std::string bell(double mean, double deviation) {
        return concat("a normal distribution with mean ", number_text(mean, 9), " and deviation ",
                      number_text(deviation, 9));
    }
    [[nodiscard]] static std::string interval(double low, double high, char const* end) {
        return concat("[", number_text(low, 9), ", ", number_text(high, 9), end);
    }
    void require_bounds(double low, double high, char const* end) const {
        if (low < high) return;
        refuse(interval(low, high, end), " is empty. Fix: low must be less than high; for one value use Constant.");
    }
    void require_number(T first, T last, double low, double high, char const* end) const {
        if (number(first) <= number(last) && number(first) <= largest() && number(last) >= -largest()) return;
        refuse("no ", dtype, " lies in ", interval(low, high, end), ". Fix: choose wider bounds.");
    }
    void require_deviation(double mean, double deviation, bool in_range) const {
        bool const finite = mean - mean == 0.0 && deviation - deviation == 0.0;
        if (in_range && finite && deviation <= largest_number<Computed<T>>() && nearest<Computed<T>>(deviation) >= 0) {
            return;
        }
        refuse(bell(mean, deviation), ". Fix: both must be finite, the deviation positive.");
    }

    std::string_view tensor_;
};

/// The same of elements that are no floats: they may be constant.
template <Initializer Law>
void check_numbers(std::string_view tensor, DType dtype, Law const& initializer) {
    if constexpr (!std::same_as<Law, Constant>) {
        refuse_initializer(tensor, "random values for elements of ", name(dtype),
                           ". Fix: use F64, F32, BF16 or F16, or initialise with Constant.");
    } else {
        if (!can_convert(DType::f64, dtype)) {
            refuse_initializer(tensor, name(dtype), " elements cannot be set. Fix: use numbers.");
        }
        std::byte stored[8]{};
        double again = 0.0;
        StridedBox one;
        StridedBox wide;
        one.element_bytes = bytes(dtype);
        wide.element_bytes = 8;
        auto const* value = reinterpret_cast<std::byte const*>(&initializer.value);
        convert(value, wide, DType::f64, stored, one, dtype, 1.0);
        convert(stored, one, dtype, reinterpret_cast<std::byte*>(&again), wide, DType::f64, 1.0);
        if (again == initializer.value) return;
        refuse_initializer(tensor, name(dtype), " has no ", number_text(initializer.value, 9),
                           ". Fix: give it a value it has, or use F32.");
    }
}

template <Initializer Law>
void check_initialize(LocalTensor const& tensor, int rank, Law const& initializer) {
    DType const dtype = tensor.view.dtype();
    if (is_floating(dtype)) {
        with_float(dtype, [&]<class T>() { InitializerCheck<T>{tensor.name}(initializer); });
    } else {
        check_numbers(tensor.name, dtype, initializer);
    }
    check_reductions(tensor.distribution, dtype, [&](std::string const& why) { refuse_initializer(tensor.name, why); });
    check_local_tensor(tensor, rank, "initialize");
    check_written(tensor, rank, "initialize");
    check_on_host(tensor, rank, "initialize");
}

/// \pre check_initialize() has passed.
template <Initializer Law>
void fill(LocalTensor const& tensor, int rank, std::uint64_t seed, Law const& initializer) {
    if (!tensor.distribution.contains(rank)) return;
    DynamicView const& view = tensor.view;
    PartialPart const part = partial_part(tensor.distribution, tensor.distribution.mesh().coordinates(rank));
    if (!part.has_values) return fill_identity(part.op, view.dtype(), view.data(), strided_box(view));
    if constexpr (std::same_as<Law, Constant>) {
        StridedBox const to = strided_box(view);
        StridedBox from = to;  // one value, read again and again
        from.element_bytes = sizeof(double);
        for (StridedDim& dim : from.dims.values) dim.stride = 0;
        auto const* value = reinterpret_cast<std::byte const*>(&initializer.value);
        convert(value, from, DType::f64, view.data(), to, view.dtype(), 1.0);
    } else {
        std::uint64_t const stream = name_stream(tensor.name);
        with_float(view.dtype(), [&]<class T>() {
            RandomValues<T, Law> const values(initializer);
            for_each_global_run(tensor, rank, [&](GlobalRun const& run) {
                constexpr Index size = sizeof(T);
                write_values<T>(values, seed, stream, run.first, run.count, view.data() + run.offset * size,
                                run.step * size);
            });
        });
    }
}

}  // namespace detail

/// Fills what `rank` holds of each tensor. All are checked before the first is written. Nothing to do for ranks outside
/// a tensor's mesh. A box of a larger tensor gets what the larger one has there.
///
/// Throws, naming the tensor: DTypeError for element types other than F64, F32, BF16 and F16 (Constant: for values the
/// type does not have), for bounds or deviations without a meaning, and where values may be beyond the type;
/// ShapeError for a box that is none of the larger tensor, BufferError for a view that is not what the rank holds, or
/// lies in memory of a device.
template <Initializer Law>
void initialize(std::span<LocalTensor const> tensors, int rank, std::uint64_t seed, Law const& initializer) {
    for (LocalTensor const& tensor : tensors) detail::check_initialize(tensor, rank, initializer);
    for (LocalTensor const& tensor : tensors) detail::fill(tensor, rank, seed, initializer);
}
template <Initializer Law>
void initialize(LocalTensor const& tensor, int rank, std::uint64_t seed, Law const& initializer) {
    initialize(std::span<LocalTensor const>(&tensor, 1), rank, seed, initializer);
}

/// The same for a typed view.
template <class T, Initializer Law>
void initialize(std::string_view name, DynamicDistribution const& distribution, TensorView<T> const& view, int rank,
                std::uint64_t seed, Law const& initializer) {
    static_assert(std::same_as<Law, Constant> || is_floating(dtype_of<T>),
                  "reshard::initialize: random values need floats. Fix: use double, float, BFloat16 or Float16, or "
                  "initialise with Constant.");
    initialize(LocalTensor{std::string(name), distribution, view}, rank, seed, initializer);
}

}  // namespace reshard::inline v0_1
