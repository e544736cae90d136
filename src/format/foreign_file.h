// What a path leads to that is not a model file, for messages that say what to do. Internal to
// format/ and import/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "storage/block_reader.h"

namespace hearth {

// A file of another kind than was expected.
struct ForeignFile {
  ErrorCode code = ErrorCode::kUnsupported;
  std::string found;  // what it is and what to do, as a message shows it after "found"
};

// Bytes from the start of a file that tell its kind, where it has so many.
inline constexpr size_t kForeignHeadBytes = 64;
std::string ReadHead(const BlockReader& file);

// Recognizes what is not a text by its first bytes (a Git LFS pointer, HTML, archives, GGUF, ...);
// nothing where they are unknown. `file_bytes` is the size of the whole file.
std::optional<ForeignFile> RecognizeSignature(std::string_view head, uint64_t file_bytes);

// The same; also empty files, text and zeros.
std::optional<ForeignFile> RecognizeForeignFile(std::string_view head, uint64_t file_bytes);

// Throws Error(kUnsupported), saying which command or file would do, where `path` is a folder that
// holds a model. Returns where it is none.
void RefuseModelFolder(const std::string& path);

// Returns how to join the parts of a file that was cut for its upload, where the name of `path`
// says that it is one of them ("m.gguf.part1of2", "m.gguf-split-a", "m.gguf.001"); else nothing.
std::optional<std::string> HowToJoin(const std::string& path);

}  // namespace hearth
