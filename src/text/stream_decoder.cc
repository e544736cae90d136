#include <utility>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace hearth {

std::string StreamDecoder::Push(TokenId id) {
  pending_ += tokenizer_.TokenBytes(id);
  return TakeComplete(/*at_end=*/false);
}

std::string StreamDecoder::Finish() { return TakeComplete(/*at_end=*/true); }

std::string StreamDecoder::TakeComplete(bool at_end) {
  std::string complete;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Char next = ScanUtf8(rest);
    if (next.status == Utf8Status::kIncomplete && !at_end) break;
    if (next.status == Utf8Status::kComplete) {
      complete += rest.substr(0, next.length);
    } else {
      complete += kReplacementCharacter;
    }
    rest.remove_prefix(next.length);
  }
  pending_ = std::string(rest);
  return complete;
}

}  // namespace hearth
