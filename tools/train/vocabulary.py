"""The vocabulary: a SentencePiece BPE model plus two chat control tokens.

Ids follow Llama's file order: <unk>, <s>, </s>, 256 byte tokens, merged pieces,
single characters, and at the very end <|im_start|> and <|im_end|>, which
SentencePiece itself does not know.
"""

from __future__ import annotations

from pathlib import Path

import sentencepiece

BOS_ID = 1
EOS_ID = 2
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"

# ChatML; Llama-style loaders add <s> themselves (add_bos_token).
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Vocabulary:
    """Turns text and chats into ids exactly as a Llama-style loader would."""

    def __init__(self, model_path: Path) -> None:
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(model_path))
        self.im_start_id = self.pieces.get_piece_size()
        self.im_end_id = self.im_start_id + 1
        self.size = self.im_end_id + 1
        # Encoding without the leading space is encoding behind a known first
        # piece: a newline is a byte token that never merges.
        self._newline_id = self.pieces.piece_to_id("<0x0A>")

    def encode(self, text: str, space_prefix: bool = True) -> list[int]:
        """Ids of plain text; `space_prefix` is GGUF's add_space_prefix."""
        if not text:
            return []
        if space_prefix:
            return self.pieces.encode(text)
        ids = self.pieces.encode("\n" + text)
        return ids[ids.index(self._newline_id) + 1:]

    def encode_plain(self, text: str, closed: bool) -> list[int]:
        """<s> text, and </s> where the text is complete."""
        return [BOS_ID] + self.encode(text) + ([EOS_ID] if closed else [])

    def encode_chat(self, messages: list[dict[str, str]], space_prefix: bool) -> list[int]:
        """The chat template's output as ids.

        Loaders differ: llama.cpp puts the space prefix behind every special
        token, others only at the start. Training shows both.
        """
        ids = [BOS_ID]
        for index, message in enumerate(messages):
            if index:
                ids += self.encode("\n", space_prefix)
            ids += [self.im_start_id]
            ids += self.encode(f"{message['role']}\n{message['content']}", space_prefix)
            ids += [self.im_end_id]
        return ids + self.encode("\n", space_prefix)

    def decode(self, ids: list[int]) -> str:
        """Text with control tokens written out."""
        out, run = "", []
        names = {BOS_ID: "<s>", EOS_ID: "</s>", self.im_start_id: IM_START, self.im_end_id: IM_END}
        for token in list(ids) + [None]:
            if token is None or token in names:
                out += self.pieces.decode(run) if run else ""
                out += names.get(token, "")
                run = []
            else:
                run.append(int(token))
        return out
