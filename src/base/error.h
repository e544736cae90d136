// The one exception type of Hearth.
//
// Set-up code (opening, parsing, planning, loading) throws hearth::Error; hot paths do not throw.
// A front end turns it into one sentence on stderr, an HTTP status or an error code. Nothing in
// the library aborts or prints because of what a user or a file supplied.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hearth {

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that makes no sense
  kNotFound,         // a file, tensor, key or name is missing
  kIo,               // the operating system refused or failed
  kCorrupt,          // a file contradicts itself or its format
  kUnsupported,      // well-formed, but nothing here can do it
  kOutOfBudget,      // would exceed the memory the user allowed
  kContextFull,      // more tokens than the context holds
  kCancelled,        // the caller asked to stop
  kInternal,         // a bug in Hearth
};

// Short lower-case name of a code, e.g. "corrupt"; for JSON and logs.
std::string_view ErrorCodeName(ErrorCode code);

// A setting or a field of a request, by the one name that the library, its bindings and the HTTP
// API have for it: "top_p", "memory". A front end that has another name for it (--top-p) says that.
struct Field {
  std::string_view name;
};

// What happened, where, and what was expected instead. `what()` is one sentence without a full
// stop: "model.gguf: tensor count: expected at most 65536, found 4294967295".
class Error : public std::runtime_error {
 public:
  // where: the file or tensor concerned; what: the key or the problem.
  Error(ErrorCode code, std::string_view where, std::string_view what);
  Error(ErrorCode code, std::string_view where, std::string_view what, std::string_view expected,
        std::string_view found);
  // field: the setting that must change; what() begins with its name.
  Error(ErrorCode code, Field field, std::string_view what);
  Error(ErrorCode code, Field field, std::string_view what, std::string_view expected,
        std::string_view found);

  ErrorCode code() const noexcept { return code_; }
  const std::string& where() const noexcept { return where_; }
  // The setting's name; empty where it is not about one.
  const std::string& field() const noexcept { return field_; }
  // what() without the file or field that it begins with.
  std::string_view problem() const noexcept;
  const std::string& expected() const noexcept { return expected_; }
  const std::string& found() const noexcept { return found_; }

 private:
  ErrorCode code_;
  std::string where_;
  std::string field_;
  std::string expected_;
  std::string found_;
};

// Text from a file made safe to print in a message: control and non-ASCII bytes become \xNN and
// anything longer than max_chars is cut with "...".
std::string Printable(std::string_view text, size_t max_chars = 80);

}  // namespace hearth
