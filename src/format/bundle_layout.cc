#include "format/bundle_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/checksum.h"
#include "base/error.h"
#include "base/rounding.h"
#include "tensor/row_groups.h"

namespace hearth {
namespace {

constexpr uint64_t kCheckBytes = 2 * sizeof(uint32_t);

// What a role is called in bundles of gated FFNs and of those of two matrices; null where these
// have no such part.
struct RoleNames {
  BundleRole role;
  const char* gated;
  const char* two_matrix;

  const char* In(bool is_gated) const { return is_gated ? gated : two_matrix; }
};
constexpr RoleNames kRoles[] = {{BundleRole::kGate, "gate", "fc1"},
                                {BundleRole::kBias, nullptr, "bias"},
                                {BundleRole::kCheck, "check", "check"},
                                {BundleRole::kUp, "up", nullptr},
                                {BundleRole::kDown, "down", "fc2"}};

std::string PartText(const BundleLayout& layout, const BundlePart& part) {
  const bool is_check = part.role == BundleRole::kCheck;
  return fmt::format("{} {} {} {}", layout.RoleName(part.role),
                     is_check ? "xxh32" : NameOf(part.dtype), part.offset, part.bytes);
}

// The next word of `text`, which loses it and the space after it.
std::string_view TakeWord(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::optional<uint64_t> ParseNumber(std::string_view word) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// Reads what PartText writes.
class PartReader {
 public:
  PartReader(const std::string& file, bool is_gated) : file_(file), is_gated_(is_gated) {}

  BundlePart Read(const std::string& text) const {
    std::string_view rest = text;
    const std::string_view role = TakeWord(rest), type = TakeWord(rest);
    const auto offset = ParseNumber(TakeWord(rest)), bytes = ParseNumber(TakeWord(rest));
    if (!offset || !bytes || !rest.empty()) {
      throw Error(ErrorCode::kCorrupt, file_, kBundlePartsKey, "'role type offset bytes'",
                  "'" + Printable(text) + "'");
    }
    BundlePart part{.offset = *offset, .bytes = *bytes};
    const auto found = std::find_if(std::begin(kRoles), std::end(kRoles), [&](const RoleNames& r) {
      return r.In(is_gated_) != nullptr && role == r.In(is_gated_);
    });
    if (found == std::end(kRoles)) throw Unknown("role", role);
    part.role = found->role;
    if (part.role == BundleRole::kCheck) {
      if (type != "xxh32") throw Unknown("check", type);
      return part;
    }
    if (part.role == BundleRole::kBias) {
      if (type != NameOf(DType::kF32)) throw Unknown("type of a bias", type);
      return part;
    }
    const std::optional<DType> dtype = DTypeFromName(type);
    if (!dtype || !CanBundle(*dtype)) throw Unknown("type", type);
    part.dtype = *dtype;
    return part;
  }

 private:
  Error Unknown(const char* what, std::string_view found) const {
    return Error(ErrorCode::kUnsupported, file_,
                 fmt::format("{}: unknown {} '{}'", kBundlePartsKey, what, Printable(found)));
  }

  const std::string& file_;
  const bool is_gated_;
};

uint64_t BytesOf(const BundlePart& part, int64_t hidden) {
  if (part.role == BundleRole::kCheck) return kCheckBytes;
  return part.role == BundleRole::kBias ? sizeof(float) : BundleRowBytes(part.dtype, hidden);
}

bool IsInFront(BundleRole role) { return role != BundleRole::kUp && role != BundleRole::kDown; }

// All from the first byte of one part to the last of the other, which may be null.
CheckedPart Both(const BundlePart& one, const BundlePart* other) {
  if (other == nullptr) return {one.offset, one.bytes};
  const uint64_t begin = std::min(one.offset, other->offset);
  return {begin, std::max(one.offset + one.bytes, other->offset + other->bytes) - begin};
}

// Throws unless the layout is one that readers may rely on.
void CheckLayout(const BundleLayout& layout, bool is_gated, int64_t hidden,
                 const std::string& file) {
  const auto refuse = [&](const std::string& what, const std::string& expected,
                          const std::string& found) {
    throw Error(ErrorCode::kCorrupt, file, what, expected, found);
  };
  if (layout.stride == 0 || layout.stride % kBundleAlignment != 0) {
    refuse("bytes of a bundle", "a multiple of 512", std::to_string(layout.stride));
  }
  if (layout.split % kBundleAlignment != 0 || layout.split > layout.stride) {
    refuse(std::string(kBundleSplitKey), "a multiple of 512 inside the bundle",
           std::to_string(layout.split));
  }
  for (const RoleNames& names : kRoles) {
    if (names.In(is_gated) == nullptr) continue;
    const auto count = std::count_if(layout.parts.begin(), layout.parts.end(),
                                     [&](const BundlePart& p) { return p.role == names.role; });
    if (count == 1 || (count == 0 && names.role == BundleRole::kBias)) continue;
    refuse(fmt::format("{}: parts with role {}", kBundlePartsKey, names.In(is_gated)), "1",
           std::to_string(count));
  }
  uint64_t free_from = 0;
  for (const BundlePart& part : layout.parts) {
    const std::string name = fmt::format("part {} of a bundle", layout.RoleName(part.role));
    if (part.bytes != BytesOf(part, hidden)) {
      refuse(name, fmt::format("{} bytes", BytesOf(part, hidden)), std::to_string(part.bytes));
    }
    const bool in_front = IsInFront(part.role);
    const uint64_t begin = std::max(free_from, in_front ? 0 : layout.split);
    const uint64_t end = in_front ? layout.split : layout.stride;
    if (part.offset < begin || part.offset > end || part.bytes > end - part.offset) {
      refuse(name, fmt::format("inside bytes {} to {}", begin, end),
             fmt::format("{} bytes from {} on", part.bytes, part.offset));
    }
    free_from = part.offset + part.bytes;
  }
  const CheckedPart gate = GateChecked(layout);
  const BundlePart& check = layout.Part(BundleRole::kCheck);
  if (check.offset >= gate.offset && check.offset < gate.offset + gate.bytes) {
    refuse("part check of a bundle", "outside of what it checks", "between fc1 and bias");
  }
}

}  // namespace

BundleKind BundleLayout::kind() const {
  return {.is_gated = FindPart(BundleRole::kUp) != nullptr,
          .has_bias = FindPart(BundleRole::kBias) != nullptr};
}

const BundlePart* BundleLayout::FindPart(BundleRole role) const {
  for (const BundlePart& part : parts) {
    if (part.role == role) return &part;
  }
  return nullptr;
}

const BundlePart& BundleLayout::Part(BundleRole role) const {
  if (const BundlePart* part = FindPart(role)) return *part;
  throw Error(ErrorCode::kInternal, "BundleLayout",
              fmt::format("no part of role {}", static_cast<int>(role)));
}

const char* BundleLayout::RoleName(BundleRole role) const {
  for (const RoleNames& names : kRoles) {
    if (names.role == role) return names.In(kind().is_gated);
  }
  return nullptr;
}

bool CanBundle(DType dtype) { return IsRowType(dtype); }

uint64_t BundleRowBytes(DType dtype, int64_t hidden) {
  if (HasRowGroups(dtype)) return static_cast<uint64_t>(RowGroupsOf(dtype, hidden).bytes);
  return RowBytes(dtype, static_cast<size_t>(hidden));
}

BundleLayout MakeBundleLayout(DType dtype, int64_t hidden, const BundleKind& kind) {
  const uint64_t row = BundleRowBytes(dtype, hidden);
  BundleLayout layout;
  uint64_t end = 0;
  const auto add = [&](BundleRole role, DType type, uint64_t bytes) {
    layout.parts.push_back({role, type, end, bytes});
    end += bytes;
  };
  add(BundleRole::kGate, dtype, row);
  if (kind.has_bias) add(BundleRole::kBias, DType::kF32, sizeof(float));
  add(BundleRole::kCheck, DType::kF32, kCheckBytes);
  layout.split = end = RoundUp<uint64_t>(end, kBundleAlignment);
  if (kind.is_gated) add(BundleRole::kUp, dtype, row);
  add(BundleRole::kDown, dtype, row);
  layout.stride = RoundUp<uint64_t>(end, kBundleAlignment);
  return layout;
}

bool IsPacked(const GgufMetadata& metadata) { return metadata.Has(kFormatVersionKey); }

BundleLayout ReadBundleLayout(const GgufMetadata& metadata, int64_t hidden, uint64_t stride) {
  const std::string& file = metadata.file_name();
  const uint64_t version = metadata.GetUint(kFormatVersionKey);
  if (version != kPackedFormatVersion) {
    throw Error(ErrorCode::kUnsupported, file, kFormatVersionKey,
                std::to_string(kPackedFormatVersion), std::to_string(version));
  }
  const std::vector<std::string>* parts = metadata.FindStrings(kBundlePartsKey);
  if (parts == nullptr) {
    throw Error(ErrorCode::kNotFound, file, fmt::format("{} is missing", kBundlePartsKey));
  }
  BundleLayout layout{.split = metadata.GetUint(kBundleSplitKey), .stride = stride};
  const bool is_gated = std::none_of(parts->begin(), parts->end(), [](const std::string& text) {
    return text.starts_with("fc1 ");
  });
  const PartReader reader(file, is_gated);
  for (const std::string& text : *parts) layout.parts.push_back(reader.Read(text));
  std::sort(layout.parts.begin(), layout.parts.end(),
            [](const BundlePart& a, const BundlePart& b) { return a.offset < b.offset; });
  CheckLayout(layout, is_gated, hidden, file);
  return layout;
}

void WriteBundleLayout(const BundleLayout& layout, GgufMetadata* metadata) {
  metadata->SetUint32("general.alignment", kBundleAlignment);
  metadata->SetUint32(kFormatVersionKey, kPackedFormatVersion);
  metadata->SetUint64(kBundleSplitKey, layout.split);
  std::vector<std::string> parts;
  for (const BundlePart& part : layout.parts) parts.push_back(PartText(layout, part));
  metadata->SetStrings(kBundlePartsKey, std::move(parts));
}

std::string BundleTensorName(int64_t layer) { return fmt::format("blk.{}.ffn_bundle", layer); }
std::string BundleOrderName(int64_t layer) { return fmt::format("blk.{}.ffn_order", layer); }
std::string BundleRateName(int64_t layer) { return fmt::format("blk.{}.ffn_rate", layer); }

RowsView RowsOfPart(const BundleLayout& layout, BundleRole role, int64_t hidden, int64_t count,
                    const std::byte* bundle, size_t stride) {
  const BundlePart* const part = layout.FindPart(role);
  if (part == nullptr) return {};
  RowsView rows{.data = bundle + part->offset,
                .dtype = part->dtype,
                .stride = stride,
                .cols = hidden,
                .rows = count};
  const BundlePart* const bias = layout.FindPart(BundleRole::kBias);
  if (role == BundleRole::kGate && bias != nullptr) rows.biases = bundle + bias->offset;
  return rows;
}

CheckedPart GateChecked(const BundleLayout& layout) {
  return Both(layout.Part(BundleRole::kGate), layout.FindPart(BundleRole::kBias));
}

CheckedPart RestChecked(const BundleLayout& layout) {
  return Both(layout.Part(BundleRole::kDown), layout.FindPart(BundleRole::kUp));
}

uint32_t GateCheckOf(const BundleLayout& layout, std::span<const std::byte> bundle) {
  const CheckedPart gate = GateChecked(layout);
  return Xxh32(bundle.subspan(gate.offset, gate.bytes));
}

uint32_t RestCheckOf(const BundleLayout& layout, std::span<const std::byte> rest) {
  const CheckedPart checked = RestChecked(layout);
  return Xxh32(rest.subspan(checked.offset - layout.split, checked.bytes));
}

BundleChecks StoredChecks(const BundleLayout& layout, std::span<const std::byte> bundle) {
  BundleChecks checks;
  static_assert(sizeof(checks) == kCheckBytes);
  std::memcpy(&checks, bundle.data() + layout.Part(BundleRole::kCheck).offset, sizeof(checks));
  return checks;
}

void SetBundleChecks(const BundleLayout& layout, std::span<std::byte> bundle) {
  const BundleChecks checks = {GateCheckOf(layout, bundle),
                               RestCheckOf(layout, bundle.subspan(layout.split))};
  std::memcpy(bundle.data() + layout.Part(BundleRole::kCheck).offset, &checks, sizeof(checks));
}

bool BundleIsIntact(const BundleLayout& layout, std::span<const std::byte> bundle) {
  const BundleChecks checks = StoredChecks(layout, bundle);
  return checks.gate == GateCheckOf(layout, bundle) &&
         checks.rest == RestCheckOf(layout, bundle.subspan(layout.split));
}

}  // namespace hearth
