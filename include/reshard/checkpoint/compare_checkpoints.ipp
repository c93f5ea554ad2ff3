// SPDX-License-Identifier: Apache-2.0
// How checkpoint/compare_checkpoints.hpp is done.
#pragma once

#include <reshard/checkpoint/compare_checkpoints.hpp>
#include <reshard/checkpoint/detail/consolidate_output.hpp>
#include <reshard/checkpoint/detail/consolidate_piece.hpp>
#include <reshard/checkpoint/detail/file_entries.hpp>
#include <reshard/checkpoint/detail/load_files.hpp>
#include <reshard/checkpoint/detail/replica_value.hpp>
#include <reshard/checkpoint/json_tree.hpp>
#include <reshard/checkpoint/ranged_read.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/core/sorting.hpp>

#include <cmath>    // abs, isfinite
#include <cstring>  // memcmp

namespace reshard::inline v0_1 {

namespace detail {

/// Throws BufferError for options that mean nothing.
inline void check(CompareOptions const& options) {
    check_option("CompareOptions", "most_elements", options.most_elements, 0, "0 lists none.");
    check_option("CompareOptions", "window_bytes", options.window_bytes, 1, "some megabytes are fast.");
    for (auto const& [what, value] : {std::pair{"rtol", options.rtol}, {"atol", options.atol}}) {
        if (value >= 0) continue;
        raise(ErrorCode::buffer, "reshard::CompareOptions: ", what, " is ", number_text(value, 6),
              ". Fix: 0 asks for equal bits.");
    }
    check(options.reads);
}

/// A tensor that both have, in forms that are compared, or a copy of it: its places in the two catalogues.
struct ComparedTensor {
    std::size_t first = 0;
    std::size_t second = 0;
    int copy = 0;
};

/// What one rank found in a tensor, by its place in the list of those that are compared: a record for each element that
/// is listed, the first of them with the numbers, or one without an element.
struct Found {
    std::size_t tensor = 0;
    Index elements = 0;
    Index measured = 0;
    double largest = 0;
    bool is_listed = false;
    DifferentElement element{};
};

/// Goes through a part of the tensors, a window of each checkpoint at a time.
struct CompareWindows {
    LoadFiles& first;
    LoadFiles& second;
    std::span<ComparedTensor const> tensors;
    CompareOptions const& options;
    std::vector<ReadBox> boxes{};
    std::vector<std::byte> a{};
    std::vector<std::byte> b{};
    std::size_t first_found = 0;  ///< of a tensor, its first record

    /// A share of the line of all tensors, as the first checkpoint has them. What differs is added to `out`, in their
    /// order.
    void run(ByteLine const& line, int rank, int ranks, std::vector<Found>& out) {
        Index const begin = line.cut(rank, ranks);
        Index const end = line.cut(rank + 1, ranks);
        line.for_each_piece(begin, end, options.window_bytes, [&, this](std::vector<ElementRun> const& piece) {
            for (ElementRun const& run : piece) {
                std::size_t const number = line.items()[run.of].tensor;
                if (out.empty() || out.back().tensor != number) first_found = out.size();
                window(line.tensor(number), number, run.begin, run.end, out);
            }
            if (options.progress)
                options.progress(line.position(piece.back().of, piece.back().end) - begin, end - begin);
        });
    }

private:
    void window(LineTensor const& tensor, std::size_t number, Index begin, Index end, std::vector<Found>& out) {
        bool const is_same_type = !tensor.casts();
        auto const room = as_size((end - begin) * larger(tensor.from_bytes(), tensor.to_bytes()));
        if (room > a.size()) {
            a.resize(room);
            b.resize(room);
        }
        ComparedTensor const& one = tensors[number];
        read(first, one.first, one.copy, tensor, tensor.to, begin, end, a.data());
        read(second, one.second, one.copy, tensor, tensor.from, begin, end, b.data());
        if (is_same_type && std::memcmp(a.data(), b.data(), room) == 0) return;
        FloatFormat format;
        FloatFormat other;
        bool const is_float = float_format(tensor.to, format) && float_format(tensor.from, other);
        auto const width = static_cast<int>(tensor.to_bytes());
        auto const other_width = static_cast<int>(tensor.from_bytes());
        for (Index i = begin; i < end; ++i) {
            std::uint64_t const x = load_bits(width, a.data() + (i - begin) * width);
            std::uint64_t const y = load_bits(other_width, b.data() + (i - begin) * other_width);
            if (is_same_type && x == y) continue;
            double const p = is_float ? float_value(format, x) : 0;
            double const q = is_float ? float_value(other, y) : 0;
            double const distance = std::abs(p - q);
            if (is_float && is_close(p, q, distance, is_same_type)) continue;
            bool const is_listed = out.size() - first_found < as_size(options.most_elements);
            if (is_listed || out.size() == first_found) out.push_back({number, 0, 0, 0, is_listed, {i, x, y}});
            Found& sum = out[first_found];
            ++sum.elements;
            if (!is_float || !std::isfinite(distance)) continue;
            ++sum.measured;
            sum.largest = larger(sum.largest, distance);
        }
    }
    /// Elements [begin, end) of a copy of a tensor in row-major order, packed.
    void read(LoadFiles& files, std::size_t place, int copy, LineTensor tensor, DType dtype, Index begin, Index end,
              std::byte* to) {
        boxes.clear();
        tensor.from = dtype;
        append_reads(boxes, files.catalogue(), place, tensor, copy, Box(tensor.shape), begin, end, to);
        for (ReadBox const& box : boxes) files.open(box.file);
        files.read(ReadPlan(boxes, options.reads));
    }
    /// Numbers whose bits differ, or are not comparable.
    [[nodiscard]] bool is_close(double p, double q, double distance, bool is_same_type) const noexcept {
        bool const is_exact = options.rtol == 0 && options.atol == 0;
        if (is_same_type && is_exact) return false;
        if (!is_same_type && (p == q || (std::isnan(p) && std::isnan(q)))) return true;
        return std::isfinite(distance) && distance <= options.atol + options.rtol * std::abs(q);
    }
};

/// The tensors of two catalogues side by side: what both have alike is to be compared, all else is a difference.
[[nodiscard]] inline std::vector<ComparedTensor> tensors_alike(Catalogue const& first, Catalogue const& second,
                                                               bool ignore_dtype, CompareReport& report) {
    std::vector<CheckpointDifference>& differences = report.differences;
    auto const is_compared = [&](DType x, DType y) {
        FloatFormat format;
        return x == y || (ignore_dtype && float_format(x, format) && float_format(y, format));
    };
    std::vector<ComparedTensor> alike;
    for (StoredTensor const& a : first.tensors()) {
        StoredTensor const* const b = second.find(a.name);
        if (b == nullptr) {
            differences.push_back({DifferenceKind::only_first, a.name, 0, a.dtype, a.shape});
        } else if (is_compared(a.dtype, b->dtype) && a.shape == b->shape) {
            bool const as_many = a.replicas == b->replicas;
            for (int copy = 0; copy < (as_many ? larger(a.replicas, 1) : 1); ++copy)
                alike.push_back({as_size(&a - first.tensors().data()), as_size(b - second.tensors().data()), copy});
            if (!as_many) report.copies_not_compared += a.replicas + b->replicas - 2;
            ++report.tensors;
        } else {
            differences.push_back({DifferenceKind::form, a.name, 0, a.dtype, a.shape, b->dtype, b->shape});
        }
    }
    for (StoredTensor const& b : second.tensors())
        if (first.find(b.name) == nullptr)
            differences.push_back({DifferenceKind::only_second, b.name, 0, DType::u8, {}, b.dtype, b.shape});
    return alike;
}

/// (key, value) of all values below a node.
using JsonFields = std::vector<std::pair<std::string, std::string>>;
inline void add_fields(JsonFields& fields, JsonTree const& tree, std::uint32_t node) {
    switch (tree.kind(node)) {
        case JsonTree::Kind::list:
        case JsonTree::Kind::object:
            tree.for_each(node, [&](std::uint32_t item) { add_fields(fields, tree, item); });
            return;
        case JsonTree::Kind::integer: fields.emplace_back(tree.path(node), std::to_string(tree.integer(node))); return;
        case JsonTree::Kind::text: fields.emplace_back(tree.path(node), tree.text(node)); return;
        default: fields.emplace_back(tree.path(node), "of another kind");
    }
}

/// Of the text of a table (docs/mch-format.md) what counts beside its tensors. Not: the cut, buckets of a sorted table,
/// which follow it, and what tensors say as well.
[[nodiscard]] inline JsonFields table_fields(std::string const& text) {
    static constexpr std::string_view left_out[] = {"version", "offsets", "ranks", "ids", "rows"};
    constexpr RefuseFile refuse = [](std::string_view, std::string_view what) {
        raise(ErrorCode::format, "reshard::mch: the text of a table: ", what, ". Fix: restore the file.");
    };
    JsonFields fields;
    try {
        JsonTree const tree(text, "", refuse);
        bool const is_sorted = JsonReader(tree).at("layout").text_view() == "sorted";
        tree.for_each(0, [&](std::uint32_t item) {
            std::string_view const key = tree.key(item);
            if (std::ranges::find(left_out, key) != std::end(left_out) || (is_sorted && key == "buckets")) return;
            add_fields(fields, tree, item);
        });
        if (tree.find(0, "decay_exponent") == 0) fields.emplace_back("decay_exponent", "1");
    } catch (FormatError const&) {  // anybody's text under such a key
        fields.emplace_back("text", text);
    }
    return fields;
}

/// The tables that both have, and that are not the same beside their tensors.
inline void compare_tables(Metadata const& first, Metadata const& second,
                           std::vector<CheckpointDifference>& differences) {
    auto const find = [](JsonFields const& fields, std::string const& key) {
        auto const at = std::ranges::find(fields, key, &JsonFields::value_type::first);
        return at == fields.end() ? nullptr : &at->second;
    };
    auto const shown = [](std::string const* value) { return value == nullptr ? "absent" : list_name(*value); };
    for (auto const& [key, text] : first) {
        std::string const* const other = key.starts_with(mch_table_key) ? find_metadata(second, key) : nullptr;
        if (other == nullptr || *other == text) continue;
        JsonFields const a = table_fields(text);
        JsonFields const b = table_fields(*other);
        JsonFields all = a;
        all.insert(all.end(), b.begin(), b.end());
        auto const differs = [&](std::string const& field) {
            std::string const* const x = find(a, field);
            std::string const* const y = find(b, field);
            return x == nullptr || y == nullptr || *x != *y;
        };
        auto const at = std::ranges::find_if(all, differs, &JsonFields::value_type::first);
        if (at == all.end()) continue;
        CheckpointDifference one;
        one.kind = DifferenceKind::table;
        one.tensor = key.substr(mch_table_key.size());
        one.field = at->first;
        one.first_value = shown(find(a, at->first));
        one.second_value = shown(find(b, at->first));
        differences.push_back(std::move(one));
    }
}

/// What all ranks found, put together: each has looked at elements behind those of the ranks before it.
inline void join(std::vector<CheckpointDifference>& differences, std::span<Found const> all,
                 std::span<ComparedTensor const> alike, Catalogue const& first, Catalogue const& second,
                 int most_elements) {
    std::size_t last = alike.size();
    for (Found const& found : all) {
        if (found.tensor != last) {
            ComparedTensor const& one = alike[found.tensor];
            StoredTensor const& stored = first.tensors()[one.first];
            DType const other = second.tensors()[one.second].dtype;
            differences.push_back(
                {DifferenceKind::values, stored.name, one.copy, stored.dtype, stored.shape, other, stored.shape});
            last = found.tensor;
        }
        CheckpointDifference& one = differences.back();
        one.elements += found.elements;
        one.measured += found.measured;
        one.largest = larger(one.largest, found.largest);
        bool const has_room = one.places.size() < as_size(most_elements);
        if (found.is_listed && has_room) one.places.push_back(found.element);
    }
    sort_list(differences, [](CheckpointDifference const& a, CheckpointDifference const& b) {
        return a.tensor != b.tensor ? a.tensor < b.tensor : a.copy < b.copy;
    });
}

[[nodiscard]] inline CompareReport compare_once(std::string const& first, std::string const& second,
                                                CommunicatorRef comm, CompareOptions const& options) {
    GatheredLists<Found> room;
    // Ranks that compare other tensors would take other parts, and leave elements out.
    agree_on_words(comm, "compare_checkpoints", [&] {
        check(options);
        room.make_room(comm.size());
        return concat("compares ", options_text({{"rtol", number_text(options.rtol, 17)},
                                                 {"atol", number_text(options.atol, 17)},
                                                 {"ignore_dtype", options.ignore_dtype},
                                                 {"rename", renames_text(options.rename)},
                                                 {"most_elements", options.most_elements}}));
    });

    PendingVerdict pending("compare_checkpoints");
    LoadFiles a = look_together(first, comm, room.lists, pending);
    LoadFiles b = look_together(second, comm, room.lists, pending);

    CompareReport report;
    report.first_kind = a.catalogue().kind();
    report.second_kind = b.catalogue().kind();
    report.rtol = options.rtol;
    report.atol = options.atol;
    std::vector<ComparedTensor> alike;
    std::vector<Found> found;
    pending.attempt([&] {
        a.rename([&](Catalogue from) { return renamed(std::move(from), options.rename, true); });
        compare_tables(a.catalogue().manifest().metadata, b.catalogue().manifest().metadata, report.differences);
        alike = tensors_alike(a.catalogue(), b.catalogue(), options.ignore_dtype, report);
        std::vector<LineTensor> tensors;
        for (ComparedTensor const& one : alike) {
            StoredTensor const& tensor = a.catalogue().tensors()[one.first];
            report.elements += tensor.shape.size();
            tensors.push_back(line_tensor(b.catalogue().tensors()[one.second], tensor.dtype));
        }
        ByteLine const line(std::move(tensors));
        report.bytes = line.bytes();
        CompareWindows{a, b, alike, options}.run(line, comm.rank(), comm.size(), found);
        a.check_unchanged();
        b.check_unchanged();
    });
    room.gather(comm, found, pending);
    pending.attempt(
        [&] { join(report.differences, room.all, alike, a.catalogue(), b.catalogue(), options.most_elements); });
    pending.agree(comm);
    return report;
}

[[nodiscard]] inline std::string form_text(DType dtype, DynamicShape const& shape) {
    return concat(name(dtype), " ", to_string(shape));
}

}  // namespace detail

RESHARD_INLINE CompareReport compare_checkpoints(std::string const& first, std::string const& second,
                                                 CommunicatorRef comm, CompareOptions const& options) {
    return detail::load_saved([&] { return detail::compare_once(first, second, comm, options); });
}

RESHARD_INLINE std::string index_text(CheckpointDifference const& difference, Index place) {
    if (!is_byte_sized(difference.dtype)) return errors::concat("byte ", place);
    return to_string(DynamicShape(detail::unravel(difference.shape, place)));
}

RESHARD_INLINE std::string value_text(CheckpointDifference const& difference, std::uint64_t bits, bool other) {
    DType const dtype = other ? difference.other_dtype : difference.dtype;
    return detail::value_text(is_byte_sized(dtype) ? dtype : DType::u8, bits);
}

RESHARD_INLINE std::string explain(CompareReport const& report) {
    std::string const compared =
        errors::concat(detail::count_text(report.tensors, "tensor"), ", ", detail::bytes_text(report.bytes));
    std::string within;
    if (report.rtol > 0 || report.atol > 0)
        within = errors::concat(" within rtol ", detail::number_text(report.rtol, 6), " and atol ",
                                detail::number_text(report.atol, 6));
    bool const of_shards = report.first_kind == CheckpointKind::shards || report.second_kind == CheckpointKind::shards;
    std::string note(of_shards ? detail::kind_note(CheckpointKind::shards) : "");
    if (Index const left = report.copies_not_compared; left > 0)
        detail::append(note, {"note: ", left, left == 1 ? " copy was" : " copies were",
                              " not compared: the other checkpoint has not as many of the tensor\n"});
    if (report.equal()) return errors::concat("equal", within, ": ", compared, "\n", note);
    std::string text = errors::concat("not equal", within, ": ",
                                      detail::count_text(detail::as_index(report.differences.size()), "difference"),
                                      "; ", compared, " compared\n");
    for (CheckpointDifference const& one : report.differences) {
        std::string const first = detail::form_text(one.dtype, one.shape);
        std::string const second = detail::form_text(one.other_dtype, one.other_shape);
        detail::append(text, {"  ", detail::list_name(one.tensor)});
        if (one.copy > 0) detail::append(text, {", copy ", one.copy});
        text += ": ";
        switch (one.kind) {
            case DifferenceKind::table:
                detail::append(text, {"a table with ", one.field, " ", one.first_value, " in the first, ",
                                      one.second_value, " in the second\n"});
                break;
            case DifferenceKind::only_first: detail::append(text, {first, ", only in the first\n"}); break;
            case DifferenceKind::only_second: detail::append(text, {second, ", only in the second\n"}); break;
            case DifferenceKind::form:
                detail::append(text, {first, " in the first, ", second, " in the second\n"});
                break;
            case DifferenceKind::values: {
                bool const by_byte = !is_byte_sized(one.dtype);
                Index const all = by_byte ? stored_bytes_of(one.dtype, Box(one.shape)) : one.shape.size();
                std::string const types =
                    one.dtype == one.other_dtype ? "" : errors::concat(" and ", name(one.other_dtype));
                detail::append(text, {first, types, ", ", one.elements, " of ",
                                      detail::count_text(all, by_byte ? "byte" : "element"), " differ"});
                if (one.largest > 0)
                    detail::append(text, {one.measured < one.elements ? ", finite ones by " : ", by ",
                                          detail::number_text(one.largest, 6), " at most"});
                text += '\n';
                for (DifferentElement const& element : one.places) {
                    detail::append(text, {"    ", index_text(one, element.place), ": ", value_text(one, element.first),
                                          " and ", value_text(one, element.second, true), "\n"});
                }
                Index const more = one.elements - detail::as_index(one.places.size());
                if (more > 0) detail::append(text, {"    and ", more, " more\n"});
            }
        }
    }
    detail::append(text, {note});
    return text;
}

}  // namespace reshard::inline v0_1
