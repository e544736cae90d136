#include "prepare/synth/planted_space.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

namespace hearth {
namespace {

// Tensors of the file are numbered from 0; what is drawn here is none of them.
constexpr uint64_t kFirstStream = uint64_t{1} << 40;
// Streams of a layer's directions lie this far from the next layer's.
constexpr uint64_t kLayerStreams = uint64_t{1} << 24;
// Enough that a cold neuron fires in a handful of topics and in none of the others. Cache misses
// come in bursts where the topic changes, which few topics make rarer and many worse.
constexpr int64_t kTopics = 32;
constexpr double kTopicStay = 20;  // tokens
// Control tokens and bytes (synth_vocabulary.h) are in topics like all others, but not said.
constexpr int64_t kFirstToken = 259;

// Enough for all threads that work on neighbouring layers.
constexpr size_t kKeptBases = 3;

void ScaleToUnit(float* x, int64_t n) {
  const auto scale = static_cast<float>(1 / std::sqrt(DotOf(x, x, n)));
  for (int64_t i = 0; i < n; ++i) x[i] *= scale;
}

}  // namespace

TopicMap PlantedTopics(const ModelShape& shape, uint64_t seed) {
  return {.seed = seed,
          // Every one has tokens; kMinVocabSize leaves one.
          .topics = std::min(kTopics, shape.vocab_size - kFirstToken),
          .stay = kTopicStay,
          .first_token = kFirstToken,
          .vocab_size = shape.vocab_size};
}

double DotOf(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  for (; i < n; ++i) sum += static_cast<double>(a[i] * b[i]);
  return sum;
}

void AddScaled(float scale, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += scale * x[i];
}

float CutOf(std::vector<float>& values, double rate) {
  const auto count = static_cast<int64_t>(values.size());
  const double rank = rate * static_cast<double>(count + 1);
  const auto above = static_cast<int64_t>(rank);
  if (above >= count) return *std::min_element(values.begin(), values.end()) - 0.5f;
  if (above == 0) return *std::max_element(values.begin(), values.end());
  // Between the last that is above and the first that is not.
  const auto last = values.begin() + (above - 1);
  std::nth_element(values.begin(), last, values.end(), std::greater<>());
  const float next = *std::max_element(last + 1, values.end());
  return *last + static_cast<float>(rank - static_cast<double>(above)) * (next - *last);
}

PlantedSpace::PlantedSpace(const TopicMap& topics, int64_t hidden, int64_t directions,
                           const TopicShares& shares)
    : topics_(topics),
      hidden_(hidden),
      directions_(directions),
      generator_(topics.seed),
      u_(static_cast<size_t>(hidden)),
      of_token_(static_cast<size_t>(hidden)),
      topic_points_(static_cast<size_t>(topics.topics * hidden)) {
  Normals(Purpose::kCommon, 0, hidden, u_.data());
  ScaleToUnit(u_.data(), hidden);
  const int64_t router = shares.has_routers ? RouterComponents() : 0;
  // What routers' components lack or have too much, the others make up for.
  const double part = static_cast<double>(router) / static_cast<double>(hidden);
  const double others = std::min(1.0, (shares.mean - part * shares.router) / (1 - part));
  topic_share_ = part * shares.router + (1 - part) * others;
  std::vector<float> of_topic(of_token_.size());
  for (int64_t i = 0; i < hidden; ++i) {
    const double share = i < router ? shares.router : others;
    of_topic[static_cast<size_t>(i)] = static_cast<float>(std::sqrt(share));
    of_token_[static_cast<size_t>(i)] = static_cast<float>(std::sqrt(1 - share));
  }
  for (int64_t topic = 0; topic < topics.topics; ++topic) {
    float* point = topic_points_.data() + topic * hidden;
    Normals(Purpose::kTopic, static_cast<uint64_t>(topic), hidden, point);
    for (int64_t i = 0; i < hidden; ++i) point[i] *= of_topic[static_cast<size_t>(i)];
  }
}

void PlantedSpace::Normals(Purpose purpose, uint64_t index, int64_t n, float* out) const {
  generator_.Fill(DType::kF32, {0, 1}, kFirstStream + static_cast<uint64_t>(purpose), index,
                  std::as_writable_bytes(std::span(out, static_cast<size_t>(n))));
}

// Gram and Schmidt, every row against those before it.
PlantedBasis PlantedSpace::MakeBasis(int64_t layer) const {
  PlantedBasis basis{.hidden = hidden_};
  basis.rows.resize(static_cast<size_t>((directions_ + 1) * hidden_));
  std::copy(u_.begin(), u_.end(), basis.rows.begin());
  for (int64_t i = 1; i <= directions_; ++i) {
    float* row = basis.rows.data() + i * hidden_;
    Normals(Purpose::kBasis,
            static_cast<uint64_t>(layer) * kLayerStreams + static_cast<uint64_t>(i), hidden_, row);
    for (int64_t before = 0; before < i; ++before) {
      const float* other = basis.rows.data() + before * hidden_;
      AddScaled(static_cast<float>(-DotOf(row, other, hidden_)), other, hidden_, row);
    }
    ScaleToUnit(row, hidden_);
  }
  return basis;
}

std::shared_ptr<const PlantedBasis> PlantedSpace::BasisOf(int64_t layer) const {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [kept, basis] : bases_) {
      if (kept == layer) return basis;
    }
  }
  // Outside the lock: threads that need another layer go on; two that need the same make it twice.
  auto made = std::make_shared<const PlantedBasis>(MakeBasis(layer));
  const std::lock_guard lock(mutex_);
  for (const auto& [kept, basis] : bases_) {
    if (kept == layer) return basis;
  }
  if (bases_.size() == kKeptBases) bases_.erase(bases_.begin());
  bases_.emplace_back(layer, made);
  return made;
}

void PlantedSpace::Embedding(TokenId token, float* out) const {
  Normals(Purpose::kToken, static_cast<uint64_t>(token), hidden_, out);
  const float* topic = topic_points_.data() + topics_.TopicOf(token) * hidden_;
  const auto b = static_cast<float>(std::sqrt(1 - kCommonShare));
  const auto along_u = static_cast<float>(std::sqrt(kCommonShare * static_cast<double>(hidden_)));
  for (int64_t i = 0; i < hidden_; ++i) {
    const auto c = static_cast<size_t>(i);
    out[i] = along_u * u_[c] + b * (topic[i] + of_token_[c] * out[i]);
  }
}

void PlantedSpace::RouterRow(int64_t layer, int64_t experts, int64_t expert, double mean,
                             double std, float* out) const {
  const int64_t seen = RouterComponents();
  Normals(Purpose::kRouter, static_cast<uint64_t>(layer * experts + expert), seen, out);
  std::fill(out + seen, out + hidden_, 0.0f);
  // What all tokens share is no reason to choose.
  AddScaled(static_cast<float>(-DotOf(out, u_.data(), seen) / DotOf(u_.data(), u_.data(), seen)),
            u_.data(), seen, out);
  ScaleToUnit(out, seen);
  const auto scale = static_cast<float>(std / std::sqrt(1 - kCommonShare));
  for (int64_t i = 0; i < seen; ++i) out[i] *= scale;
  const double along_u = std::sqrt(kCommonShare * static_cast<double>(hidden_));
  AddScaled(static_cast<float>(mean / along_u), u_.data(), hidden_, out);
}

std::vector<float> PlantedSpace::TopicsIn(const PlantedBasis& basis) const {
  std::vector<float> out(static_cast<size_t>(directions_ * topics_.topics));
  for (int64_t i = 0; i < directions_; ++i) {
    for (int64_t topic = 0; topic < topics_.topics; ++topic) {
      out[static_cast<size_t>(i * topics_.topics + topic)] = static_cast<float>(
          DotOf(basis.Direction(i), topic_points_.data() + topic * hidden_, hidden_));
    }
  }
  return out;
}

}  // namespace hearth
