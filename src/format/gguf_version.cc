// What a file is that claims to be GGUF: magic number, version, byte order.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "format/gguf_parse.h"

namespace hearth {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr size_t kSniffBytes = 64;

struct Signature {
  std::string_view bytes;
  const char* description;
};

constexpr std::array kSignatures = {
    Signature{"version https://git-lfs", "a Git LFS pointer (the model itself was not downloaded)"},
    Signature{std::string_view("PK\x03\x04", 4), "a zip archive (PyTorch checkpoints are such)"},
    Signature{"\x80\x02", "a Python pickle (an old PyTorch checkpoint)"},
    Signature{"tjgg", "a GGML file from before GGUF (ggjt)"},
    Signature{"fmgg", "a GGML file from before GGUF (ggmf)"},
    Signature{"lmgg", "a GGML file from before GGUF (ggml)"},
    Signature{"FUGG", "a big-endian GGUF file"},
    Signature{"\x1f\x8b", "a gzip archive"},
    Signature{"\x28\xb5\x2f\xfd", "a Zstandard archive"},
    Signature{"\xfd"
              "7zXZ",
              "an xz archive"},
    Signature{"7z\xbc\xaf", "a 7-Zip archive"},
    Signature{"\x7f"
              "ELF",
              "a program (ELF)"},
    Signature{"\x89HDF", "an HDF5 file"},
    Signature{"<!", "an HTML page (a failed download?)"},
    Signature{"<html", "an HTML page (a failed download?)"},
};

// The safetensors format opens with the length of its JSON header and the header itself.
bool LooksLikeSafetensors(std::string_view head, uint64_t file_bytes) {
  uint64_t json_bytes = 0;
  if (head.size() < 10) return false;
  std::memcpy(&json_bytes, head.data(), sizeof(json_bytes));
  return json_bytes < file_bytes && head[8] == '{' && (head[9] == '"' || head[9] == '}');
}

bool LooksLikeText(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 ? byte != 0x7f : byte == '\n' || byte == '\r' || byte == '\t';
  });
}

struct Verdict {
  ErrorCode code;
  std::string found;
};

// What a file is whose first bytes are `head` and no GGUF magic number.
Verdict JudgeForeignFile(const BlockReader& reader, std::string_view head) {
  if (head.empty()) return {ErrorCode::kCorrupt, "an empty file"};
  if (LooksLikeSafetensors(head, reader.size_bytes())) {
    return {ErrorCode::kUnsupported, "a safetensors file"};
  }
  for (const Signature& signature : kSignatures) {
    if (head.substr(0, signature.bytes.size()) == signature.bytes) {
      return {ErrorCode::kUnsupported, signature.description};
    }
  }
  if (LooksLikeText(head)) {
    return {ErrorCode::kUnsupported, fmt::format("a text file ('{}')", Printable(head, 24))};
  }
  if (std::all_of(head.begin(), head.end(), [](char c) { return c == 0; })) {
    return {ErrorCode::kCorrupt, "zero bytes (an unfinished download?)"};
  }
  return {ErrorCode::kCorrupt, fmt::format("the bytes '{}'", Printable(head.substr(0, 4)))};
}

}  // namespace

uint32_t ReadGgufVersion(const BlockReader& reader, HeaderCursor& cursor) {
  std::array<char, kSniffBytes> bytes;
  const size_t head_bytes =
      static_cast<size_t>(std::min<uint64_t>(bytes.size(), reader.size_bytes()));
  reader.ReadAt(0, std::as_writable_bytes(std::span(bytes.data(), head_bytes)));
  const std::string_view head(bytes.data(), head_bytes);
  if (head.substr(0, kMagic.size()) != kMagic) {
    const Verdict verdict = JudgeForeignFile(reader, head);
    throw Error(verdict.code, reader.name(), "magic number", "a GGUF file", verdict.found);
  }

  cursor.Read<uint32_t>("magic number");
  const auto version = cursor.Read<uint32_t>("version");
  if (version == 2 || version == 3) return version;
  const bool swapped = version != 0 && (version & 0xffff) == 0;
  cursor.Fail(ErrorCode::kUnsupported, "version", "2 or 3, little-endian",
              swapped ? "a big-endian file" : fmt::format("{}", version));
}

}  // namespace hearth
