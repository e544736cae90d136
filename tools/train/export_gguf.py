#!/usr/bin/env python3
"""Writes a training checkpoint as a GGUF file: F16 matrices, F32 norms, tokenizer, chat template.

Training rotates adjacent pairs, which is what GGUF's llama layout means, so
that no rows are permuted here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np
import torch

from model import LAYER_TENSORS, ModelConfig
from vocabulary import BOS_ID, CHAT_TEMPLATE, EOS_ID, IM_END, IM_START, Vocabulary

DESCRIPTION = (
    "A small storyteller trained by the Hearth project on its own story grammar and on public-domain "
    "prose. Llama-shaped with a dReLU feed-forward: sparse by nature."
)


def add_sizes(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    """Model sizes and what kind of network this is."""
    writer.add_name("Hearth Stories 5M")
    writer.add_description(DESCRIPTION)
    writer.add_license("apache-2.0")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_vocab_size(config.vocab_size)
    writer.add_string("hearth.ffn_activation", "drelu")


def token_type(vocabulary: Vocabulary, token: int) -> gguf.TokenType:
    """GGUF's class of a SentencePiece piece."""
    pieces = vocabulary.pieces
    if pieces.is_unknown(token):
        return gguf.TokenType.UNKNOWN
    if pieces.is_control(token):
        return gguf.TokenType.CONTROL
    return gguf.TokenType.BYTE if pieces.is_byte(token) else gguf.TokenType.NORMAL


def add_tokenizer(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    """Tokens, scores, types, special ids and the chat template."""
    count = vocabulary.pieces.get_piece_size()
    control = [IM_START, IM_END]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([vocabulary.pieces.id_to_piece(i) for i in range(count)] + control)
    writer.add_token_scores([vocabulary.pieces.get_score(i) for i in range(count)] + [0.0] * len(control))
    writer.add_token_types([token_type(vocabulary, i) for i in range(count)] + [gguf.TokenType.CONTROL] * len(control))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_eot_token_id(vocabulary.im_end_id)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)
    writer.add_chat_template(CHAT_TEMPLATE)


def add_tensors(writer: gguf.GGUFWriter, weights: dict[str, torch.Tensor], num_layers: int) -> None:
    """All tensors; the output matrix is the embedding and is not stored again."""
    def add(name: str, tensor: torch.Tensor) -> None:
        dtype = np.float16 if tensor.dim() == 2 else np.float32
        writer.add_tensor(name, tensor.float().numpy().astype(dtype))

    add("token_embd.weight", weights["embedding.weight"])
    for layer in range(num_layers):
        for source, target in LAYER_TENSORS.items():
            add(f"blk.{layer}.{target}", weights[f"blocks.{layer}.{source}"])
    add("output_norm.weight", weights["output_norm.weight"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.model")
    parser.add_argument("--out", type=Path, required=True, help="GGUF file to write")
    args = parser.parse_args()

    state = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
    config = ModelConfig(**state["config"])
    vocabulary = Vocabulary(args.tokenizer)
    if vocabulary.size != config.vocab_size:
        raise SystemExit(f"tokenizer has {vocabulary.size} tokens, the model {config.vocab_size}")
    temporary = args.out.with_suffix(".part")
    writer = gguf.GGUFWriter(temporary, "llama")
    add_sizes(writer, config)
    add_tokenizer(writer, vocabulary)
    add_tensors(writer, state["model"], config.num_layers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    temporary.replace(args.out)
    progress = state["progress"]
    print(f"{args.out}: {args.out.stat().st_size} bytes, step {progress['step']}, {progress['tokens']} tokens seen")


if __name__ == "__main__":
    main()
