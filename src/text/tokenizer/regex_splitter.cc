#include "text/tokenizer/regex_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

// Bounds on what one match may cost: backtracking steps, interpreter heap, and the larger machine
// stack (reserved address space, of which only what is used becomes memory).
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 32 * 1024;
constexpr size_t kJitStackStartBytes = size_t{64} << 10;
constexpr size_t kJitStackMaxBytes = size_t{32} << 20;

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using CodePtr = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using ContextPtr = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using JitStackPtr = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

}  // namespace

class RegexSplitter::Pattern {
 public:
  explicit Pattern(const std::string& text) {
    int code = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_UCP, &code, &offset, nullptr));
    if (code_ == nullptr) {
      throw Error(ErrorCode::kInternal, "pre-tokenizer",
                  "pattern " + Printable(text) + " fails to compile at " + std::to_string(offset));
    }
    // Where the system allows no executable memory, pcre2_match interprets instead.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  const pcre2_code* code() const { return code_.get(); }

 private:
  CodePtr code_;
};

// The state of one call of Split.
class RegexSplitter::Run {
 public:
  Run(const std::vector<std::unique_ptr<Pattern>>& patterns, const Emit& emit)
      : patterns_(patterns), emit_(emit), context_(pcre2_match_context_create(nullptr)) {
    if (context_ != nullptr) {
      pcre2_set_match_limit(context_.get(), kMatchLimit);
      pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    }
    for (const auto& pattern : patterns) {
      match_data_.emplace_back(pcre2_match_data_create_from_pattern(pattern->code(), nullptr));
    }
  }

  // Depth is bounded by the number of patterns.
  void Cut(std::string_view piece, size_t level) {
    if (piece.empty()) return;
    if (level == patterns_.size()) {
      emit_(piece);
      return;
    }
    size_t done = 0;
    while (done < piece.size() && Match(piece, level, done)) {
      // Read before going deeper: each level has match data of its own, so it stays valid, but
      // the pointer belongs to the match just made.
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match_data_[level].get());
      const size_t begin = range[0];
      const size_t end = range[1];
      Cut(piece.substr(done, begin - done), level + 1);
      Cut(piece.substr(begin, end - begin), level + 1);
      done = end;
    }
    Cut(piece.substr(done), level + 1);
  }

 private:
  // False where there is no match, or none could be found within the limits.
  bool Match(std::string_view piece, size_t level, size_t from) {
    if (context_ == nullptr || match_data_[level] == nullptr) return false;
    int result = MatchOnce(piece, level, from, 0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && jit_stack_ == nullptr) {
      jit_stack_.reset(pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr));
      if (jit_stack_ != nullptr) {
        pcre2_jit_stack_assign(context_.get(), nullptr, jit_stack_.get());
        result = MatchOnce(piece, level, from, 0);
      }
    }
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result = MatchOnce(piece, level, from, PCRE2_NO_JIT);
    }
    return result > 0;
  }

  int MatchOnce(std::string_view piece, size_t level, size_t from, uint32_t options) {
    // An empty match would cut nothing; the piece is known to be UTF-8.
    return pcre2_match(patterns_[level]->code(), reinterpret_cast<PCRE2_SPTR>(piece.data()),
                       piece.size(), from, options | PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK,
                       match_data_[level].get(), context_.get());
  }

  const std::vector<std::unique_ptr<Pattern>>& patterns_;
  const Emit& emit_;
  ContextPtr context_;
  JitStackPtr jit_stack_;
  std::vector<MatchDataPtr> match_data_;
};

RegexSplitter::RegexSplitter(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    patterns_.push_back(std::make_unique<Pattern>(pattern));
  }
}

RegexSplitter::~RegexSplitter() = default;

void RegexSplitter::Split(std::string_view text, const Emit& emit) const {
  Run(patterns_, emit).Cut(text, 0);
}

}  // namespace hearth
