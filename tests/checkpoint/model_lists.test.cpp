// SPDX-License-Identifier: Apache-2.0
#include "../../examples/support/model_lists.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace reshard;

TEST_SUITE("checkpoint/model_lists") {
    TEST_CASE("counts and bytes are those of the published models") {
        struct Row {
            demo::ModelConfig config;
            std::size_t tensors;
            Index parameters;
        };
        Row const rows[] = {
            {demo::qwen2_5_0_5b(), 290, 494'032'768},
            {demo::qwen2_5_1_5b(), 338, 1'543'714'304},
            {demo::qwen3_0_6b(), 310, 596'049'920},
            {demo::qwen2_5_3b(), 434, 3'085'938'688},
            {demo::qwen1_5_moe_a2_7b(), 4659, 14'315'784'192},
        };
        CHECK(demo::models().size() == std::size(rows));
        for (Row const& row : rows) {
            CAPTURE(row.config.name);
            auto const list = demo::model_list(row.config);
            CHECK(list.size() == row.tensors);
            CHECK(demo::total_bytes(list) == 2 * row.parameters);
            std::set<std::string> names;
            for (auto const& tensor : list) {
                names.insert(tensor.name);
                CHECK(tensor.dtype == DType::bf16);
            }
            CHECK(names.size() == list.size());
        }
    }

    TEST_CASE("fewer layers leave the rest of the model as it is") {
        auto const list = demo::model_list(demo::qwen2_5_0_5b(2));
        CHECK(list.size() == 2 + 2 * 12);
        CHECK(list.front() == TensorSpec{"model.embed_tokens.weight", DType::bf16, Shape{151936, 896}});
        CHECK(list.back() == TensorSpec{"model.norm.weight", DType::bf16, Shape{896}});
    }

    TEST_CASE("shapes of single tensors are [out, in]") {
        auto const shape = [](demo::ModelConfig const& config, std::string const& wanted) {
            for (auto const& tensor : demo::model_list(config)) {
                if (tensor.name == wanted) return to_string(tensor.shape);
            }
            return std::string("absent");
        };
        std::string const last = "model.layers.23.";
        CHECK(shape(demo::qwen2_5_0_5b(), last + "self_attn.q_proj.weight") == "[896,896]");
        CHECK(shape(demo::qwen2_5_0_5b(), last + "self_attn.k_proj.weight") == "[128,896]");
        CHECK(shape(demo::qwen2_5_0_5b(), last + "self_attn.v_proj.bias") == "[128]");
        CHECK(shape(demo::qwen2_5_0_5b(), last + "mlp.down_proj.weight") == "[896,4864]");
        CHECK(shape(demo::qwen2_5_0_5b(), "lm_head.weight") == "absent");
        CHECK(shape(demo::qwen3_0_6b(), last + "self_attn.q_proj.weight") == "[2048,1024]");
        CHECK(shape(demo::qwen3_0_6b(), last + "self_attn.o_proj.weight") == "[1024,2048]");
        CHECK(shape(demo::qwen3_0_6b(), last + "self_attn.k_norm.weight") == "[128]");
        CHECK(shape(demo::qwen3_0_6b(), last + "self_attn.q_proj.bias") == "absent");
        CHECK(shape(demo::qwen1_5_moe_a2_7b(), last + "mlp.experts.59.gate_proj.weight") == "[1408,2048]");
        CHECK(shape(demo::qwen1_5_moe_a2_7b(), last + "mlp.experts.60.gate_proj.weight") == "absent");
        CHECK(shape(demo::qwen1_5_moe_a2_7b(), last + "mlp.shared_expert.down_proj.weight") == "[2048,5632]");
        CHECK(shape(demo::qwen1_5_moe_a2_7b(), last + "mlp.shared_expert_gate.weight") == "[1,2048]");
        CHECK(shape(demo::qwen1_5_moe_a2_7b(), last + "mlp.gate_proj.weight") == "absent");
        CHECK(shape(demo::qwen1_5_moe_a2_7b(), "lm_head.weight") == "[151936,2048]");
    }
}
