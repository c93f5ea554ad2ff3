// SPDX-License-Identifier: Apache-2.0
//
// Names that programs have of their own stay unambiguous beside `using namespace reshard`: had namespace reshard one of
// them, this would not compile.
#include <reshard/algebra/segments.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/comm/streams.hpp>
#include <reshard/memory/convert.hpp>
#include <reshard/memory/fold.hpp>
#include <reshard/plan/batch.hpp>
#include <reshard/plan/box_table.hpp>
#include <reshard/reshard.hpp>

using namespace reshard;

inline constexpr int concat = 1;
inline constexpr int convert = 1;
inline constexpr int copy = 1;
inline constexpr int deliver = 1;
inline constexpr int fill_identity = 1;
inline constexpr int fold = 1;
inline constexpr int part_of = 1;
inline constexpr int scale = 1;
inline constexpr int symbol = 1;
struct BoxExchange {};
struct BoxMessage {};
struct Conversion {};
struct Digest {};
struct Divider {};
struct Exchange {};
struct Message {};
struct Receive {};
struct Repeat {};
struct RoundLoad {};
struct Segments {};
struct Send {};
struct Signature {};
struct StridedBox {};
struct StridedDim {};
struct Transfer {};
struct Verdict {};

// As the library has them.
template <class... Words>
constexpr int raise(ErrorCode /*code*/, Words... /*words*/) {
    return 1;
}
constexpr int part(int number) { return number; }
constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
template <class T>
constexpr T smaller(T a, T b) {
    return a < b ? a : b;
}
template <class T>
constexpr T larger(T a, T b) {
    return a < b ? b : a;
}

// Of other types: those of the library are found by their arguments.
constexpr int name(int number) { return number; }
constexpr int bytes(int number) { return number; }
static_assert(name(DType::f32) == "F32" && name(Reduce::sum) == "sum" && name(1) == 1);
static_assert(bytes(DType::f32) == 4 && bytes(1) == 1);

int main() {
    int const mine = concat + convert + copy + deliver + fill_identity + fold + part(1) + part_of + scale + symbol;
    Index const others = ceil_div(3, 2) + smaller(2, 3) + larger(2, 3);
    Send const send;
    Receive const receive;
    Transfer const transfer;
    auto const own = [](Send, Receive, Transfer, Verdict, Conversion, StridedBox, StridedDim, Digest) { return 1; };
    if (own(send, receive, transfer, {}, {}, {}, {}, {}) != 1) return 1;
    auto const planned = [](Message, Exchange, BoxMessage, BoxExchange, Repeat, Segments, Signature, Divider,
                            RoundLoad) { return 1; };
    if (planned({}, {}, {}, {}, {}, {}, {}, {}, {}) != 1) return 1;
    return mine == 10 && others == 7 && raise(ErrorCode::io, "no ", "more") == 1 ? 0 : 1;
}
