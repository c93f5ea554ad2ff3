// SPDX-License-Identifier: Apache-2.0
// The kernels of the partition, split counts, tables of managed collisions and boxes, as they are launched: for
// check.py, which reads what ptxas says of them.
#include <reshard/comm/detail/kernel_copies.cuh>
#include <reshard/cuda/device_work.cuh>
#include <reshard/cuda/merge_runs.hpp>
#include <reshard/cuda/partition_by_rank.cuh>
#include <reshard/cuda/partitions.hpp>
#include <reshard/cuda/split_counts.cuh>
#include <reshard/mch/detail/device_row_moves.hpp>
#include <reshard/mch/detail/device_slots.hpp>
#include <reshard/memory/on_device.cuh>

namespace reshard::detail {

template <class Kernel>
void take(Kernel* kernel) {
    Kernel* volatile const kept = kernel;
    static_cast<void>(kept);
}
template <int Items, class Rule, class Columns>
void take_partition() {
    take(&tile_kernel<CountState, CountShared<Rule>, CountTile<Items, Rule>>);
    take(&tile_kernel<ScatterState<Items>, ScatterShared<Items>, ScatterTile<Items, Columns>>);
}
/// The same of many tables.
template <class Columns>
void take_scatters() {
    take(&tile_kernel<ScatterState<8>, ScatterShared<8>, TilesTogether<ScatterTile<8, Columns>>>);
}
template <class Body>
void take_each() {
    take(&tile_kernel<NoState, NoShared, EachIndex<Body>>);
}
template <class Body>
void take_together() {
    take(&tile_kernel<NoState, NoShared, TilesTogether<EachIndex<Body>>>);
}

template <class A>
void take_folds() {
    take(&fold_box_kernel<A, FoldBox>);
    take(&fold_cast_kernel<A, FoldCastBox>);
}

void take_all() {
    take(&copy_pack_kernel<CopyPack>);
    take(&copy_pack_kernel<LongCopyPack>);
    take(&copy_pack_kernel<CastPack>);
    take(&fill_box_kernel<FillBox>);
    take(&scale_box_kernel<ScaleBox>);
    take_folds<float>();
    take_folds<double>();
    take_folds<std::int64_t>();
    take_folds<std::uint64_t>();
    take_partition<8, BySlot<SlotsAtOffsets>, WordColumns>();
    take_partition<8, BySlot<SlotsAtOffsets>, ByteColumns>();
    take_partition<16, BySlot<SlotsAtOffsets>, WordColumns>();
    take_partition<16, BySlot<SlotsAtOffsets>, ByteColumns>();
    take(&tile_kernel<CountState, CountShared<MchLeavingRule>, TilesTogether<CountTile<8, MchLeavingRule>>>);
    take_scatters<WordColumns>();
    take_scatters<ByteColumns>();
    take(&tile_kernel<LayoutState, NoShared, TilesTogether<LayOutBlocks<BeginOfTable>>>);
    take(&tile_kernel<LayoutState, NoShared, LayOutBlocks<BeginOfSorted<std::uint16_t>>>);
    take_each<ListDestinations<MchLeavingRule, Index>>();
    take_each<PlaceSorted<WordColumns, std::uint16_t>>();
    take_each<PlaceSorted<ByteColumns, Index>>();
    take(&split_kernel<BySlot<EvenSlots>>);
    take(&tile_kernel<MergeState, MergeShared, TilesTogether<MergeRound>>);
    take_together<MergeSearch>();
    take_each<GatherWords>();
    take_each<DealWords>();
    take(&tile_kernel<MchInspectState, NoShared, TilesTogether<MchInspect>>);
    take(&tile_kernel<CountIndicesState, NoShared, CountIndices<MchIsStray>>);
    take_together<MchFindRepeats>();
    take_together<MchMarkSlots>();
    take_together<MchGiveSlots>();
    take_together<MchWriteIds>();
    take_together<MchWriteColumns<std::uint64_t>>();
    take_together<MchWriteColumns<std::uint8_t>>();
    take_each<MchScores>();
    take_each<MchEvict>();
    take_each<MchCompact>();
    take_together<MchCheckSlots>();
    take_together<MchListFree>();
    take_each<MchListWanted>();
    take_each<MchCopyRows<std::uint64_t>>();
    take(&copy_boxes_kernel<CopyBox>);
    take(&copy_boxes_kernel<CastBox>);
}

}  // namespace reshard::detail
