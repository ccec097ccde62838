"""Mixtures of experts of transformers at tiny sizes: name -> make() -> model."""


def _tiny(cls, config, **sizes):
    def make():
        import transformers

        common = dict(
            vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, initializer_range=0.2,
        )  # fmt: skip
        made = getattr(transformers, config)(**{**common, **sizes})
        model = getattr(transformers, cls)(made).train()
        model.set_experts_implementation("grouped_mm")
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(std=0.1)
        return model

    return make


MODELS = {
    # The two best of a softmax, their weights normalised.
    "mixtral": _tiny("MixtralForCausalLM", "MixtralConfig", intermediate_size=48,
                     num_local_experts=4, num_experts_per_tok=2),
    # More and smaller experts, more of them a token; queries and keys are normalised.
    "qwen3_moe": _tiny("Qwen3MoeForCausalLM", "Qwen3MoeConfig", head_dim=8,
                       moe_intermediate_size=16, num_experts=8, num_experts_per_tok=4,
                       norm_topk_prob=True),
    # Sigmoids with a bias that has no gradient choose groups of experts, then experts; a shared
    # expert; keys and values go through a latent row.
    "deepseek_v3": _tiny("DeepseekV3ForCausalLM", "DeepseekV3Config", num_key_value_heads=4,
                         intermediate_size=64, moe_intermediate_size=16, n_routed_experts=8,
                         num_experts_per_tok=2, n_group=4, topk_group=2, n_shared_experts=1,
                         first_k_dense_replace=0, q_lora_rank=16, kv_lora_rank=16,
                         qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
                         routed_scaling_factor=2.5),
    # Experts with biases, whose gate and up lie side by side and are clamped; attention's sinks.
    "gpt_oss": _tiny("GptOssForCausalLM", "GptOssConfig", head_dim=8, intermediate_size=32,
                     num_local_experts=4, num_experts_per_tok=2, layer_types=["full_attention"]),
    # A shared expert behind a gate of its own.
    "qwen2_moe": _tiny("Qwen2MoeForCausalLM", "Qwen2MoeConfig", intermediate_size=48,
                       moe_intermediate_size=16, shared_expert_intermediate_size=32,
                       num_experts=8, num_experts_per_tok=4),
}  # fmt: skip
