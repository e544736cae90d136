#!/usr/bin/env python3
"""Writes small trained ReLU models of others as GGUF, to be run by Hearth.

They are character models of Shakespeare's plays (../shared/data/models/relu), built
like OPT: learned positions, LayerNorm, FFNs of two matrices with ReLU. Nothing of
them goes into the project.

  make_relu_models.py MODEL.pth TEXT.txt OUT.gguf    TEXT: what it was trained on

Then `hearth run OUT.gguf --raw --temp 0 -p ROMEO: -n 26` gives the text that is
recorded beside the model. Needs torch and gguf (tools/goldens/requirements.txt).
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType

_TOP = {
    "token_embedding_table.weight": "token_embd.weight",
    "position_embedding_table.weight": "position_embd.weight",
    "ln_f.weight": "output_norm.weight", "ln_f.bias": "output_norm.bias",
    "lm_head.weight": "output.weight", "lm_head.bias": "output.bias",
}
_LAYER = {
    "ln1": "attn_norm", "ln2": "ffn_norm", "sa.proj": "attn_output",
    "ffwd.net.0": "ffn_up", "ffwd.net.2": "ffn_down",
}


def gguf_tensors(state: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Tensors by GGUF name; the matrices of a layer's heads become one each."""
    out: dict[str, np.ndarray] = {}
    heads: dict[str, dict[int, np.ndarray]] = {}
    for name, tensor in state.items():
        values = tensor.float().numpy()
        head = re.fullmatch(r"blocks\.(\d+)\.sa\.heads\.(\d+)\.(key|query|value)\.weight", name)
        rest = re.fullmatch(r"blocks\.(\d+)\.(.+)\.(weight|bias)", name)
        if name in _TOP:
            out[_TOP[name]] = values
        elif head:
            matrix = {"key": "attn_k", "query": "attn_q", "value": "attn_v"}[head[3]]
            heads.setdefault(f"blk.{head[1]}.{matrix}.weight", {})[int(head[2])] = values
        elif rest:
            out[f"blk.{rest[1]}.{_LAYER[rest[2]]}.{rest[3]}"] = values
    for name, of_heads in heads.items():
        out[name] = np.concatenate([of_heads[h] for h in sorted(of_heads)])
    return out


def write(state: dict[str, torch.Tensor], characters: list[str], path: Path) -> None:
    tensors = gguf_tensors(state)
    hidden = tensors["token_embd.weight"].shape[1]
    layers = len({name.split(".")[1] for name in tensors if name.startswith("blk.")})
    num_heads = len({name for name in state if re.search(r"blocks\.0\..*\.key\.weight", name)})
    writer = GGUFWriter(path, "opt")
    writer.add_context_length(tensors["position_embd.weight"].shape[0])
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(tensors["blk.0.ffn_up.weight"].shape[0])
    writer.add_head_count(num_heads)
    writer.add_layer_norm_eps(1e-5)
    # They divide scores by the root of the hidden size, not of a head's.
    writer.add_attention_scale(hidden**-0.5)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(["\u2581" if c == " " else c for c in characters])
    writer.add_token_scores([0.0] * len(characters))
    writer.add_token_types([TokenType.NORMAL] * len(characters))
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32),
                          raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    state = torch.load(args.model, map_location="cpu", weights_only=True)
    write(state, sorted(set(args.text.read_text())), args.out)


if __name__ == "__main__":
    main()
