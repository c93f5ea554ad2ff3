// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/model_lists.hpp
/// \brief  The tensors of five public models, built from their configurations: what a demo loads without a download.
/// \depends reshard/checkpoint/tensor_info.hpp.
/// Source: `config.json` of Qwen/Qwen2.5-0.5B, Qwen2.5-1.5B, Qwen3-0.6B, Qwen2.5-3B and Qwen1.5-MoE-A2.7B on
/// huggingface.co; names as transformers gives them.
#pragma once

#include <reshard/checkpoint/tensor_info.hpp>

#include <string>       // string, to_string
#include <string_view>  // string_view
#include <vector>       // vector

namespace demo {

/// Sizes in elements.
struct ModelConfig {
    std::string name;
    int layers = 0;
    reshard::Index hidden = 0;
    reshard::Index intermediate = 0;  ///< of each dense MLP; unused with experts
    reshard::Index heads = 0;
    reshard::Index kv_heads = 0;
    reshard::Index head_dim = 0;
    reshard::Index vocabulary = 0;
    bool tied_embeddings = true;  ///< no lm_head.weight of its own
    bool attention_bias = true;   ///< on q, k and v
    bool qk_norm = false;
    int experts = 0;  ///< 0: a dense model
    reshard::Index expert_intermediate = 0;
    reshard::Index shared_intermediate = 0;
    reshard::DType dtype = reshard::DType::bf16;
};

namespace detail {
inline ModelConfig qwen2_5(std::string name, int layers, reshard::Index hidden, reshard::Index intermediate,
                           reshard::Index heads, reshard::Index head_dim) {
    ModelConfig config;
    config.name = std::move(name);
    config.layers = layers;
    config.hidden = hidden;
    config.intermediate = intermediate;
    config.heads = heads;
    config.kv_heads = 2;
    config.head_dim = head_dim;
    config.vocabulary = 151936;
    return config;
}
}  // namespace detail

/// Each takes the number of layers, so that a demo can run a slice of a model at its true widths.
inline ModelConfig qwen2_5_0_5b(int layers = 24) { return detail::qwen2_5("Qwen2.5-0.5B", layers, 896, 4864, 14, 64); }
inline ModelConfig qwen2_5_1_5b(int layers = 28) {
    return detail::qwen2_5("Qwen2.5-1.5B", layers, 1536, 8960, 12, 128);
}
inline ModelConfig qwen2_5_3b(int layers = 36) { return detail::qwen2_5("Qwen2.5-3B", layers, 2048, 11008, 16, 128); }
inline ModelConfig qwen3_0_6b(int layers = 28) {
    ModelConfig config = detail::qwen2_5("Qwen3-0.6B", layers, 1024, 3072, 16, 128);
    config.kv_heads = 8;
    config.attention_bias = false;
    config.qk_norm = true;
    return config;
}
inline ModelConfig qwen1_5_moe_a2_7b(int layers = 24) {
    ModelConfig config = detail::qwen2_5("Qwen1.5-MoE-A2.7B", layers, 2048, 0, 16, 128);
    config.kv_heads = 16;
    config.tied_embeddings = false;
    config.experts = 60;
    config.expert_intermediate = 1408;
    config.shared_intermediate = 5632;
    return config;
}

/// The five, in the order of their size.
inline std::vector<ModelConfig> models() {
    return {qwen2_5_0_5b(), qwen3_0_6b(), qwen2_5_1_5b(), qwen2_5_3b(), qwen1_5_moe_a2_7b()};
}

/// One of them. Throws UserError with the names there are.
inline ModelConfig model_called(std::string_view name) {
    std::string known;
    for (ModelConfig const& config : models()) {
        if (config.name == name) return config;
        known += reshard::errors::concat(known.empty() ? "" : ", ", config.name);
    }
    reshard::errors::raise(reshard::ErrorCode::user,
                           reshard::errors::concat("no model is called '", name, "'. Fix: one of ", known, "."));
}

/// The model with its widths divided by `scale`, for demos and tests in little memory.
inline ModelConfig scaled(ModelConfig config, reshard::Index scale) {
    for (reshard::Index* size : {&config.hidden, &config.intermediate, &config.head_dim, &config.vocabulary,
                                 &config.expert_intermediate, &config.shared_intermediate}) {
        *size = reshard::detail::larger(*size / scale, reshard::Index{1});
    }
    return config;
}

/// Every tensor of the model, in the order a forward pass meets them. Weights are [out, in].
inline std::vector<reshard::TensorSpec> model_list(ModelConfig const& config) {
    using reshard::Index;
    std::vector<reshard::TensorSpec> list;
    auto const vector = [&](std::string name, Index extent) {
        list.push_back({std::move(name), config.dtype, reshard::Shape{extent}});
    };
    auto const matrix = [&](std::string name, Index out, Index in) {
        list.push_back({std::move(name), config.dtype, reshard::Shape{out, in}});
    };
    auto const mlp = [&](std::string const& prefix, Index intermediate) {
        matrix(prefix + "gate_proj.weight", intermediate, config.hidden);
        matrix(prefix + "up_proj.weight", intermediate, config.hidden);
        matrix(prefix + "down_proj.weight", config.hidden, intermediate);
    };

    Index const q_rows = config.heads * config.head_dim;
    Index const kv_rows = config.kv_heads * config.head_dim;
    matrix("model.embed_tokens.weight", config.vocabulary, config.hidden);
    for (int layer = 0; layer < config.layers; ++layer) {
        std::string const prefix = "model.layers." + std::to_string(layer) + ".";
        std::string const attention = prefix + "self_attn.";
        vector(prefix + "input_layernorm.weight", config.hidden);
        for (char const* const which : {"q", "k", "v"}) {
            Index const rows = *which == 'q' ? q_rows : kv_rows;
            matrix(attention + which + "_proj.weight", rows, config.hidden);
            if (config.attention_bias) vector(attention + which + "_proj.bias", rows);
        }
        if (config.qk_norm) {
            vector(attention + "q_norm.weight", config.head_dim);
            vector(attention + "k_norm.weight", config.head_dim);
        }
        matrix(attention + "o_proj.weight", config.hidden, q_rows);
        vector(prefix + "post_attention_layernorm.weight", config.hidden);
        if (config.experts == 0) {
            mlp(prefix + "mlp.", config.intermediate);
        } else {
            matrix(prefix + "mlp.gate.weight", config.experts, config.hidden);
            for (int expert = 0; expert < config.experts; ++expert) {
                mlp(prefix + "mlp.experts." + std::to_string(expert) + ".", config.expert_intermediate);
            }
            mlp(prefix + "mlp.shared_expert.", config.shared_intermediate);
            matrix(prefix + "mlp.shared_expert_gate.weight", 1, config.hidden);
        }
    }
    vector("model.norm.weight", config.hidden);
    if (!config.tied_embeddings) matrix("lm_head.weight", config.vocabulary, config.hidden);
    return list;
}

/// Bytes the list takes in files.
inline reshard::Index total_bytes(std::vector<reshard::TensorSpec> const& list) {
    reshard::Index sum = 0;
    for (reshard::TensorSpec const& tensor : list) sum += reshard::stored_bytes(tensor);
    return sum;
}

}  // namespace demo
