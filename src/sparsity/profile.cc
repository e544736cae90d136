#include "sparsity/profile.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "base/checksum.h"
#include "base/error.h"
#include "format/header_cursor.h"
#include "storage/atomic_file.h"

namespace hearth {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are written as they lie");

constexpr char kMagic[8] = {'H', 'R', 'T', 'H', 'P', 'R', 'O', 'F'};
constexpr uint32_t kVersion = 1;
// More than any model has, and little enough that products of them stay far from 2^64.
constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxExperts = 65536;
constexpr uint64_t kMaxNeurons = uint64_t{1} << 24;
constexpr uint32_t kMaxNameBytes = 65535;
constexpr uint64_t kBytesPerNeuron = 8 + 8 + 8 + 4;

// docs/formats/profile.md. Behind it the name, the FFNs, and the XXH3 of all that.
struct ProfileHeader {
  char magic[8];
  uint32_t version;
  uint32_t name_bytes;
  uint64_t model_hash;
  uint64_t text_hash;
  uint64_t text_tokens;
  uint64_t total_tokens;
  uint64_t context;
  uint64_t num_layers;
  uint64_t num_experts;
  uint64_t intermediate_size;
  uint32_t kv_codec;    // the number of a KvCodec
  uint32_t activation;  // as FfnActivation numbers it
  float threshold;
  uint32_t reserved;  // 0
};
static_assert(sizeof(ProfileHeader) == 96);

template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

class ProfileWriter {
 public:
  explicit ProfileWriter(const std::string& path) : file_(path) {}

  void Write(std::span<const std::byte> bytes) {
    sum_.Update(bytes);
    file_.Write(bytes);
  }
  void Finish() {
    const uint64_t sum = sum_.Digest();
    file_.Write(std::as_bytes(std::span(&sum, 1)));
    file_.Finish();
  }

 private:
  AtomicFile file_;
  ChecksumStream sum_;
};

ProfileHeader HeaderOf(const ModelProfile& profile) {
  ProfileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.name_bytes = static_cast<uint32_t>(profile.model_name.size());
  header.model_hash = profile.model_hash;
  header.text_hash = profile.text_hash;
  header.text_tokens = profile.text_tokens;
  header.total_tokens = profile.total_tokens;
  header.context = static_cast<uint64_t>(profile.context);
  header.num_layers = static_cast<uint64_t>(profile.num_layers);
  header.num_experts = static_cast<uint64_t>(profile.num_experts);
  header.intermediate_size = static_cast<uint64_t>(profile.intermediate_size);
  header.kv_codec = static_cast<uint32_t>(profile.kv_codec);
  header.activation = static_cast<uint32_t>(profile.activation);
  header.threshold = profile.threshold;
  return header;
}

void CheckSizes(const ModelProfile& profile, const std::string& path) {
  bool fits = profile.ffns.size() == static_cast<size_t>(profile.num_layers) *
                                         static_cast<size_t>(profile.ffns_per_layer()) &&
              profile.model_name.size() <= kMaxNameBytes;
  const auto neurons = static_cast<size_t>(profile.intermediate_size);
  for (const FfnProfile& ffn : profile.ffns) {
    fits = fits && ffn.gate_fired.size() == neurons && ffn.active.size() == neurons &&
           ffn.mass.size() == neurons && ffn.down_norm.size() == neurons;
  }
  if (!fits) throw Error(ErrorCode::kInternal, path, "a profile whose parts do not fit together");
}

// Reads a profile from front to back and checks all it reads.
class ProfileReader {
 public:
  explicit ProfileReader(const BlockReader& file)
      : file_(file), cursor_(file, std::numeric_limits<uint64_t>::max()) {}

  ModelProfile Read() {
    const ProfileHeader header = ReadHeader();
    ModelProfile profile = Describe(header);
    profile.model_name.resize(header.name_bytes);
    ReadBytes("model name", std::as_writable_bytes(std::span(profile.model_name)));
    const auto ffns = static_cast<size_t>(profile.num_layers * profile.ffns_per_layer());
    CheckFileSize(ffns, header.intermediate_size);
    profile.ffns.reserve(ffns);
    for (size_t i = 0; i < ffns; ++i) {
      profile.ffns.push_back(ReadFfn(header.intermediate_size, header.total_tokens));
    }
    const uint64_t sum = sum_.Digest();
    if (cursor_.Read<uint64_t>("checksum") != sum) {
      throw Error(ErrorCode::kCorrupt, file_.name(), "profile: the checksum does not match");
    }
    return profile;
  }

 private:
  [[noreturn]] void Refuse(const char* field, const std::string& expected,
                           const std::string& found) const {
    throw Error(ErrorCode::kCorrupt, file_.name(), fmt::format("profile: {}", field), expected,
                found);
  }

  void ReadBytes(const char* field, std::span<std::byte> out) {
    cursor_.Read(field, out);
    sum_.Update(out);
  }

  void CheckCount(const char* field, uint64_t found, uint64_t least, uint64_t most) const {
    if (found >= least && found <= most) return;
    Refuse(field, fmt::format("{} to {}", least, most), std::to_string(found));
  }

  ProfileHeader ReadHeader() {
    ProfileHeader header;
    ReadBytes("header", std::as_writable_bytes(std::span(&header, 1)));
    if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
      Refuse("first bytes", "'HRTHPROF'",
             "'" + Printable({header.magic, sizeof(kMagic)}) + "' (no profile of Hearth)");
    }
    if (header.version != kVersion) {
      throw Error(ErrorCode::kUnsupported, file_.name(), "profile: version",
                  std::to_string(kVersion), std::to_string(header.version));
    }
    CheckCount("layers", header.num_layers, 1, kMaxLayers);
    CheckCount("experts", header.num_experts, 0, kMaxExperts);
    CheckCount("neurons", header.intermediate_size, 1, kMaxNeurons);
    CheckCount("bytes of the model's name", header.name_bytes, 0, kMaxNameBytes);
    CheckCount("context", header.context, 1, uint64_t{1} << 62);
    CheckCount("tokens", header.text_tokens, 0, header.total_tokens);
    CheckCount("activation", header.activation, 0, kNumFfnActivations - 1);
    CheckCount("reserved field", header.reserved, 0, 0);
    if (!std::isfinite(header.threshold)) Refuse("threshold", "a number", "none");
    return header;
  }

  ModelProfile Describe(const ProfileHeader& header) const {
    const std::optional<KvCodec> kv_codec = KvCodecFromNumber(header.kv_codec);
    if (!kv_codec) Refuse("KV type", "the number of one", std::to_string(header.kv_codec));
    ModelProfile profile;
    profile.model_hash = header.model_hash;
    profile.text_hash = header.text_hash;
    profile.text_tokens = header.text_tokens;
    profile.total_tokens = header.total_tokens;
    profile.context = static_cast<int64_t>(header.context);
    profile.kv_codec = *kv_codec;
    profile.activation = static_cast<FfnActivation>(header.activation);
    profile.threshold = header.threshold;
    profile.num_layers = static_cast<int64_t>(header.num_layers);
    profile.num_experts = static_cast<int64_t>(header.num_experts);
    profile.intermediate_size = static_cast<int64_t>(header.intermediate_size);
    return profile;
  }

  // Before anything is allocated: at most 2^12 * 2^16 * (8 + 28 * 2^24) bytes, below 2^57.
  void CheckFileSize(uint64_t ffns, uint64_t neurons) const {
    const uint64_t expected = ffns * (sizeof(uint64_t) + kBytesPerNeuron * neurons) + 8;
    if (cursor_.bytes_left() == expected) return;
    Refuse("bytes after the header", std::to_string(expected),
           std::to_string(cursor_.bytes_left()));
  }

  template <typename T>
  std::vector<T> ReadValues(const char* field, uint64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    ReadBytes(field, std::as_writable_bytes(std::span(values)));
    return values;
  }

  FfnProfile ReadFfn(uint64_t neurons, uint64_t most_tokens) {
    FfnProfile ffn;
    ReadBytes("tokens of an FFN", std::as_writable_bytes(std::span(&ffn.tokens, 1)));
    CheckCount("tokens of an FFN", ffn.tokens, 0, most_tokens);
    ffn.gate_fired = ReadValues<uint64_t>("gates fired", neurons);
    ffn.active = ReadValues<uint64_t>("active", neurons);
    ffn.mass = ReadValues<double>("mass", neurons);
    ffn.down_norm = ReadValues<float>("lengths of columns", neurons);
    for (size_t j = 0; j < ffn.mass.size(); ++j) {
      CheckCount("gates fired", ffn.gate_fired[j], 0, ffn.tokens);
      CheckCount("active", ffn.active[j], 0, ffn.tokens);
      if (!std::isfinite(ffn.mass[j]) || ffn.mass[j] < 0 || !std::isfinite(ffn.down_norm[j]) ||
          ffn.down_norm[j] < 0) {
        Refuse("mass or length of a column", "0 or more", "another value");
      }
    }
    return ffn;
  }

  const BlockReader& file_;
  HeaderCursor cursor_;
  ChecksumStream sum_;
};

}  // namespace

uint64_t ProfileBytes(const ModelProfile& profile) {
  const auto ffns = static_cast<uint64_t>(profile.num_layers * profile.ffns_per_layer());
  return ffns *
         (sizeof(FfnProfile) + kBytesPerNeuron * static_cast<uint64_t>(profile.intermediate_size));
}

void SaveProfile(const ModelProfile& profile, const std::string& path) {
  CheckSizes(profile, path);
  ProfileWriter writer(path);
  const ProfileHeader header = HeaderOf(profile);
  writer.Write(std::as_bytes(std::span(&header, 1)));
  writer.Write(std::as_bytes(std::span(profile.model_name)));
  for (const FfnProfile& ffn : profile.ffns) {
    writer.Write(std::as_bytes(std::span(&ffn.tokens, 1)));
    writer.Write(BytesOf(ffn.gate_fired));
    writer.Write(BytesOf(ffn.active));
    writer.Write(BytesOf(ffn.mass));
    writer.Write(BytesOf(ffn.down_norm));
  }
  writer.Finish();
}

ModelProfile LoadProfile(const std::string& path) { return ReadProfile(*OpenFileReader(path)); }

ModelProfile ReadProfile(const BlockReader& file) { return ProfileReader(file).Read(); }

}  // namespace hearth
