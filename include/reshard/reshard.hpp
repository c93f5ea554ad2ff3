// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/reshard.hpp
/// \brief  Everything that needs only the standard library. Transports and file formats are opt-in includes.
#pragma once

// IWYU pragma: begin_exports
#include <reshard/core/config.hpp>
#include <reshard/core/dtype.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>
#include <reshard/core/index_list.hpp>
#include <reshard/core/reduce.hpp>
#include <reshard/core/shape.hpp>
#include <reshard/core/tensor.hpp>
#include <reshard/core/tensor_view.hpp>
#include <reshard/core/transfer.hpp>

#include <reshard/algebra/bound.hpp>
#include <reshard/algebra/box.hpp>
#include <reshard/algebra/distribution.hpp>
#include <reshard/algebra/mesh.hpp>
#include <reshard/algebra/notation.hpp>
#include <reshard/algebra/placement.hpp>
#include <reshard/algebra/segments.hpp>
#include <reshard/algebra/signature.hpp>
#include <reshard/algebra/split.hpp>
#include <reshard/algebra/transition.hpp>

#include <reshard/memory/copy.hpp>
#include <reshard/memory/fold.hpp>

#include <reshard/plan/explain.hpp>
#include <reshard/plan/message.hpp>
#include <reshard/plan/plan.hpp>

#include <reshard/comm/communicator.hpp>
#include <reshard/comm/self.hpp>

#include <reshard/exec/prepare.hpp>
#include <reshard/exec/redistribute.hpp>
// IWYU pragma: end_exports
