// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/remove_checkpoint.hpp
/// \brief  Removes what saves have left in a folder, so that nobody takes the rest for a checkpoint at any time.
/// \depends core/index.hpp. Link reshard::checkpoint.
///
///     if (comm.rank() == 0) remove_checkpoint("run/step-3000");
#pragma once

#include <reshard/core/index.hpp>

namespace reshard::inline v0_1 {

/// Local, no collective call: for one rank. Removes the manifest, durably, then the files that saves make, by their
/// names, those of saves that died too, and the folder if nothing else is in it: other files stay. Killed at any
/// moment, it leaves the checkpoint whole, or none, and may be called again. Tables that older releases saved
/// (`mch.index.json`) are files of saves, and go before the manifest, so that they may be missing when that is left.
/// Returns how many files it has removed: none of a folder that is not there.
///
/// Throws IoError, and removes nothing, where a save into the folder is under way, naming its process, and where the
/// manifest names files that save() does not make (those of consolidate()); also for what the file system refuses.
/// FormatError for a manifest of a later release, whose files nobody knows here. On a file system without flock(2)
/// nobody sees whether a save is under way.
Index remove_checkpoint(std::string const& folder);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/remove_checkpoint.ipp>
#endif
