"""Writes tiny models of random weights as Hugging Face files, and what the official package computes
with them: DIR/llama (float32, two files and an index) and DIR/gemma (bfloat16, one file), each with
config.json and expected.json, the tokens and the logits.

    python make.py DIR      make them
    python make.py -read D  print the logits of the model in the directory D

Made with transformers 4.46.3, flax 0.8.5 and jax 0.4.35: internal/tools/requirements-transformers.txt.
"""
import glob
import json
import os
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, FlaxGemmaForCausalLM, FlaxLlamaForCausalLM, GemmaConfig, LlamaConfig

CLASSES = {"llama": FlaxLlamaForCausalLM, "gemma": FlaxGemmaForCausalLM}


def shapes(c):
    """The tensors of a model, as Hugging Face names them."""
    width, size = c.hidden_size, c.head_dim
    all = {"model.embed_tokens": (c.vocab_size, width), "model.norm": (width,)}
    for i in range(c.num_hidden_layers):
        layer = f"model.layers.{i}."
        all[layer + "input_layernorm"] = all[layer + "post_attention_layernorm"] = (width,)
        all[layer + "self_attn.q_proj"] = (c.num_attention_heads * size, width)
        all[layer + "self_attn.k_proj"] = all[layer + "self_attn.v_proj"] = (c.num_key_value_heads * size, width)
        all[layer + "self_attn.o_proj"] = (width, c.num_attention_heads * size)
        all[layer + "mlp.gate_proj"] = all[layer + "mlp.up_proj"] = (c.intermediate_size, width)
        all[layer + "mlp.down_proj"] = (width, c.intermediate_size)
    if not c.tie_word_embeddings:
        all["lm_head"] = (c.vocab_size, width)
    return {name + ".weight": shape for name, shape in all.items()}


def tokens(c):
    return np.random.default_rng(7).integers(0, c.vocab_size, (4, 9))


def logits(dir):
    c = AutoConfig.from_pretrained(dir)
    with tempfile.TemporaryDirectory() as one:  # the package reads several files with PyTorch only
        tensors = {}
        for file in sorted(glob.glob(f"{dir}/*.safetensors")):
            tensors.update(load_file(file))
        save_file(tensors, f"{one}/model.safetensors", metadata={"format": "pt"})
        c.save_pretrained(one)
        model = CLASSES[c.model_type].from_pretrained(one, dtype=jnp.float32)
    model.params = model.to_fp32(model.params)
    return np.asarray(model(tokens(c)).logits, np.float32)


def make(dir, c, dtype, files):
    os.makedirs(dir)
    rng = np.random.default_rng(3)
    tensors = {}
    for name, shape in shapes(c).items():
        x = rng.standard_normal(shape, np.float32) * 0.2
        if "norm" in name and c.model_type == "llama":
            x += 1
        tensors[name] = x.astype(dtype)
    c.save_pretrained(dir)
    names = list(tensors)
    if files == 1:
        save_file(tensors, f"{dir}/model.safetensors", metadata={"format": "pt"})
    else:
        where = {}
        for i in range(files):
            file = f"model-{i + 1:05}-of-{files:05}.safetensors"
            part = {n: tensors[n] for n in names[i * len(names) // files:(i + 1) * len(names) // files]}
            save_file(part, f"{dir}/{file}", metadata={"format": "pt"})
            where.update({n: file for n in part})
        with open(f"{dir}/model.safetensors.index.json", "w") as f:
            json.dump({"metadata": {"total_size": sum(x.nbytes for x in tensors.values())}, "weight_map": where}, f, indent=1)
    with open(f"{dir}/expected.json", "w") as f:
        json.dump({"tokens": tokens(c).tolist(), "logits": [[[float(f"{x:.8g}") for x in place] for place in row] for row in logits(dir).tolist()]}, f)


def main():
    if sys.argv[1] == "-read":
        print(json.dumps(logits(sys.argv[2]).tolist()))
        return
    common = dict(vocab_size=48, hidden_size=32, num_hidden_layers=3, max_position_embeddings=64)
    # Flax's Llama has the rotary base 10000, whatever the config says.
    llama = LlamaConfig(**common, intermediate_size=48, num_attention_heads=8, num_key_value_heads=4, head_dim=4, rms_norm_eps=1e-5, tie_word_embeddings=False)
    make(sys.argv[1] + "/llama", llama, np.float32, 2)
    gemma = GemmaConfig(**common, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh")
    make(sys.argv[1] + "/gemma", gemma, ml_dtypes.bfloat16, 1)


main()
