// What a file is that claims to be GGUF: magic number, version, byte order.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "format/foreign_file.h"
#include "format/gguf_parse.h"

namespace hearth {
namespace {

constexpr std::string_view kMagic = "GGUF";

}  // namespace

uint32_t ReadGgufVersion(const BlockReader& reader, HeaderCursor& cursor) {
  const std::string head = ReadHead(reader);
  if (std::string_view(head).substr(0, kMagic.size()) != kMagic) {
    const ForeignFile foreign =
        RecognizeForeignFile(head, reader.size_bytes())
            .value_or(ForeignFile{ErrorCode::kCorrupt,
                                  fmt::format("the bytes '{}'", Printable(head.substr(0, 4)))});
    throw Error(foreign.code, reader.name(), "magic number", "a GGUF file", foreign.found);
  }

  cursor.Read<uint32_t>("magic number");
  const auto version = cursor.Read<uint32_t>("version");
  if (version == 2 || version == 3) return version;
  const bool swapped = version != 0 && (version & 0xffff) == 0;
  cursor.Fail(ErrorCode::kUnsupported, "version", "2 or 3, little-endian",
              swapped ? "a big-endian file" : fmt::format("{}", version));
}

}  // namespace hearth
