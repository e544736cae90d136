#include "prepare/predict/predictor_state.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "storage/atomic_file.h"
#include "storage/block_reader.h"

namespace hearth {
namespace {

constexpr char kMagic[8] = {'H', 'P', 'R', 'E', 'D', 'S', 'T', '1'};

class StateWriter {
 public:
  template <typename T>
  void Put(T value) {
    Put(std::span<const T>(&value, 1));
  }
  template <typename T>
  void Put(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void PutFloats(const std::vector<float>& values) {
    Put(static_cast<uint64_t>(values.size()));
    Put(std::span<const float>(values));
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// The hash has been checked, so that what follows is what was written; lengths are checked even so.
class StateReader {
 public:
  StateReader(std::span<const std::byte> bytes, const std::string& path)
      : bytes_(bytes), path_(path) {}

  template <typename T>
  T Get() {
    T value;
    std::memcpy(&value, Take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  uint64_t GetCount(size_t item_bytes) {
    const auto count = Get<uint64_t>();
    if (count > bytes_.size() / item_bytes) Fail();
    return count;
  }
  std::vector<float> GetFloats() {
    std::vector<float> values(GetCount(sizeof(float)));
    const auto from = Take(values.size() * sizeof(float));
    if (!from.empty()) std::memcpy(values.data(), from.data(), from.size());
    return values;
  }

 private:
  std::span<const std::byte> Take(size_t count) {
    if (count > bytes_.size()) Fail();
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  [[noreturn]] void Fail() const {
    throw Error(ErrorCode::kCorrupt, path_, "this state of making predictors ends too early");
  }

  std::span<const std::byte> bytes_;
  const std::string& path_;
};

void PutExpert(StateWriter& out, const JudgedPredictor& judged) {
  out.Put(judged.made.rank);
  out.Put(static_cast<uint64_t>(judged.trained));
  out.Put(static_cast<uint64_t>(judged.thresholds.size()));
  for (size_t i = 0; i < judged.thresholds.size(); ++i) {
    const TrialFigures& f = judged.figures[i];
    out.Put(judged.thresholds[i]);
    for (const double d : {f.recall, f.precision, f.active, f.listed}) out.Put(d);
  }
  out.PutFloats(judged.made.down);
  out.PutFloats(judged.made.up);
  out.PutFloats(judged.made.bias);
}

JudgedPredictor GetExpert(StateReader& in) {
  JudgedPredictor judged;
  judged.made.rank = in.Get<int64_t>();
  judged.trained = in.Get<uint64_t>() != 0;
  const uint64_t steps = in.GetCount(sizeof(float) + 4 * sizeof(double));
  for (uint64_t i = 0; i < steps; ++i) {
    judged.thresholds.push_back(in.Get<float>());
    TrialFigures f;
    for (double* d : {&f.recall, &f.precision, &f.active, &f.listed}) *d = in.Get<double>();
    judged.figures.push_back(f);
  }
  judged.made.down = in.GetFloats();
  judged.made.up = in.GetFloats();
  judged.made.bias = in.GetFloats();
  if (steps > 0) judged.made.threshold = judged.thresholds.front();
  return judged;
}

std::string PathIn(const std::string& dir, int64_t layer) {
  return fmt::format("{}/layer-{:05}.predictor", dir, layer);
}

}  // namespace

PredictorState::PredictorState(std::string dir, uint64_t fingerprint)
    : dir_(std::move(dir)), fingerprint_(fingerprint) {
  if (!dir_.empty() && !std::filesystem::is_directory(dir_)) {
    throw Error(ErrorCode::kNotFound, dir_, "there is no such folder to keep finished layers in");
  }
}

std::string PredictorState::PathOf(int64_t layer) const { return PathIn(dir_, layer); }

void PredictorState::Check(int64_t layers) const {
  for (int64_t layer = 0; layer < layers; ++layer) Load(layer);
}

void PredictorState::Remove(const std::string& dir, int64_t layers) {
  std::error_code ignored;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::filesystem::remove(PathIn(dir, layer), ignored);
  }
  std::filesystem::remove(dir, ignored);  // which an entry that is left prevents
}

bool PredictorState::Has(int64_t layer) const {
  return !dir_.empty() && std::filesystem::exists(PathOf(layer));
}

std::optional<LayerPredictors> PredictorState::Load(int64_t layer) const {
  if (!Has(layer)) return std::nullopt;
  const std::string path = PathOf(layer);
  const auto file = OpenFileReader(path);
  std::vector<std::byte> bytes(file->size_bytes());
  file->ReadAt(0, bytes);
  file->DropCached(0, bytes.size());
  if (bytes.size() < sizeof(kMagic) + 2 * sizeof(uint64_t) ||
      std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    throw Error(ErrorCode::kCorrupt, path,
                "this is no finished layer; remove it, and the layer is made again");
  }
  const auto body = std::span<const std::byte>(bytes).first(bytes.size() - sizeof(uint64_t));
  StateReader tail(std::span<const std::byte>(bytes).last(sizeof(uint64_t)), path);
  if (tail.Get<uint64_t>() != Checksum(body)) {
    throw Error(ErrorCode::kCorrupt, path,
                "this finished layer has been altered; remove it, and the layer is made again");
  }
  StateReader in(body.subspan(sizeof(kMagic)), path);
  if (in.Get<uint64_t>() != fingerprint_) {
    throw Error(ErrorCode::kInvalidArgument, dir_,
                "it holds layers of another model, of another text or with other options; remove "
                "this folder to begin anew");
  }
  LayerPredictors made;
  made.seconds = in.Get<double>();
  const uint64_t experts = in.GetCount(3 * sizeof(uint64_t));
  for (uint64_t e = 0; e < experts; ++e) made.experts.push_back(GetExpert(in));
  return made;
}

void PredictorState::Save(int64_t layer, const LayerPredictors& made) const {
  if (dir_.empty()) return;
  StateWriter out;
  out.Put(std::span<const char>(kMagic));
  out.Put(fingerprint_);
  out.Put(made.seconds);
  out.Put(static_cast<uint64_t>(made.experts.size()));
  for (const JudgedPredictor& judged : made.experts) PutExpert(out, judged);
  const uint64_t hash = Checksum(out.bytes());
  out.Put(hash);
  AtomicFile file(PathOf(layer));
  file.KeepOutOfPageCache();  // a memory limit counts that too
  file.Write(out.bytes());
  file.Finish();
}

}  // namespace hearth
