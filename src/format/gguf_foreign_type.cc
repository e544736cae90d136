// Tensor types that exist but that Hearth does not read, for helpful messages.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "format/gguf.h"

namespace hearth {
namespace {

// Why a type is not read.
enum class Reason : uint8_t {
  kNoWeight,   // ggml's, of activations or newer than this list
  kWithdrawn,  // ggml has taken it back; the same weights exist in another type
  kForked,     // of one program alone
};

struct ForeignType {
  uint32_t number;
  const char* name;
  Reason reason;
};
constexpr ForeignType kForeignTypes[] = {
    {4, "Q4_2", Reason::kWithdrawn},
    {5, "Q4_3", Reason::kWithdrawn},
    {9, "Q8_1", Reason::kNoWeight},
    {15, "Q8_K", Reason::kNoWeight},
    {31, "Q4_0_4_4", Reason::kWithdrawn},
    {32, "Q4_0_4_8", Reason::kWithdrawn},
    {33, "Q4_0_8_8", Reason::kWithdrawn},
    {36, "IQ4_NL_4_4 or bitnet.cpp's I2_S", Reason::kWithdrawn},
    {37, "IQ4_NL_4_8", Reason::kWithdrawn},
    {38, "IQ4_NL_8_8", Reason::kWithdrawn},
    {133, "Q6_0", Reason::kForked},
    {134, "IQ1_BN", Reason::kForked},
    {135, "IQ2_BN", Reason::kForked},
    {137, "IQ2_K", Reason::kForked},
    {138, "IQ3_K", Reason::kForked},
    {139, "IQ4_K", Reason::kForked},
    {140, "IQ5_K", Reason::kForked},
    {141, "IQ6_K", Reason::kForked},
    {144, "IQ4_KS", Reason::kForked},
    {145, "IQ2_KS", Reason::kForked},
    {146, "IQ4_KSS", Reason::kForked}};

// Numbers from here on are no type of ggml's; forks count from 97 and 133 on.
constexpr uint32_t kFirstForked = 97;

const ForeignType* FindForeignType(uint32_t number) {
  const auto* found = std::find_if(std::begin(kForeignTypes), std::end(kForeignTypes),
                                   [&](const ForeignType& type) { return type.number == number; });
  return found == std::end(kForeignTypes) ? nullptr : found;
}

}  // namespace

std::string ForeignTypeName(uint32_t type) {
  const ForeignType* const known = FindForeignType(type);
  return known != nullptr ? known->name : fmt::format("type {}", type);
}

std::string DescribeForeignType(uint32_t type) {
  const ForeignType* const known = FindForeignType(type);
  const Reason reason = known != nullptr       ? known->reason
                        : type >= kFirstForked ? Reason::kForked
                                               : Reason::kNoWeight;
  const std::string name = known != nullptr ? std::string(known->name) + ", " : "";
  if (reason == Reason::kWithdrawn) {
    return fmt::format(
        "type {} ({}which ggml has withdrawn): get the model in another type, such "
        "as Q4_0 or Q4_K",
        type, name);
  }
  if (reason == Reason::kForked) {
    return fmt::format(
        "type {} ({}which only ik_llama.cpp or another fork has): get the model in "
        "a type of ggml's, such as Q4_K",
        type, name);
  }
  return fmt::format("type {}{}: get the model in another type, such as Q4_K or Q8_0", type,
                     known != nullptr ? fmt::format(" ({})", known->name) : "");
}

}  // namespace hearth
