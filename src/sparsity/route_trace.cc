#include "sparsity/route_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "cache/neuron_cache.h"
#include "sparsity/trace_layout.h"

namespace hearth {
namespace {

constexpr std::string_view kFirstLine = "# route_trace v1";
constexpr std::string_view kColumns = "turn,phase,step,layer,slot,expert,";  // and what we skip
// A row is some 30 bytes; this is 30 million of them.
constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
// Lines between two calls of the progress function.
constexpr int64_t kProgressLines = 4096;

// The columns that matter.
enum Column : size_t { kTurn, kPhase, kStep, kLayer, kSlot, kExpert, kUsedColumns };
using Row = std::array<int64_t, kUsedColumns>;

class RouteTraceParser {
 public:
  RouteTraceParser(const std::string& name, std::string_view text) : name_(name), text_(text) {}

  AccessSequence Parse(const ReadProgressFn& progress) {
    if (NextLine() != kFirstLine) {
      Refuse("first line", fmt::format("'{}' or a neuron trace", kFirstLine), line_);
    }
    while (NextLine().starts_with("#")) ReadComment();
    if (sequence_.num_layers == 0 || sequence_.num_experts < 2) {
      Refuse("model", "a line with n_layer and n_expert", "none");
    }
    if (!line_.starts_with(kColumns)) Refuse("columns", std::string(kColumns) + "...", line_);
    while (at_ < text_.size()) {
      NextLine();
      AddRow(ReadRow());
      if (progress && line_number_ % kProgressLines == 0) progress(at_, text_.size());
    }
    sequence_.EndBatch();
    sequence_.EndPass();
    return std::move(sequence_);
  }

 private:
  [[noreturn]] void Refuse(const char* field, const std::string& expected,
                           std::string_view found) const {
    throw Error(ErrorCode::kCorrupt, name_,
                fmt::format("expert trace: line {}: {}", line_number_, field), expected,
                "'" + Printable(found, 60) + "'");
  }

  std::string_view NextLine() {
    ++line_number_;
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    line_ = text_.substr(at_, end - at_);
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    at_ = std::min(end + 1, text_.size());
    return line_;
  }

  // The number after " key=" in the line.
  std::optional<int64_t> Named(std::string_view key, int64_t most) const {
    const size_t at = line_.find(fmt::format(" {}=", key));
    if (at == std::string_view::npos) return std::nullopt;
    std::string_view rest = line_.substr(at + key.size() + 2);
    return TakeNumber(rest, most);
  }

  void ReadComment() {
    if (!line_.starts_with("# model=")) return;
    const std::string_view path = line_.substr(8, line_.find(' ', 8) - 8);
    sequence_.unit = AccessUnit::kExperts;
    sequence_.model_name = path.substr(path.rfind('/') + 1);
    sequence_.num_layers = Named("n_layer", trace::kMaxLayers).value_or(0);
    sequence_.num_experts = Named("n_expert", trace::kMaxExperts).value_or(0);
    if (sequence_.num_keys() > NeuronCache::kMaxKeys) {
      Refuse("experts of the model", fmt::format("at most {}", NeuronCache::kMaxKeys), line_);
    }
  }

  // Takes the digits off the front.
  int64_t TakeNumber(std::string_view& rest, int64_t most) const {
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || value < 0 || value > most) {
      Refuse("number", fmt::format("0 to {}", most), rest);
    }
    rest.remove_prefix(static_cast<size_t>(stop - rest.data()));
    return value;
  }

  Row ReadRow() const {
    constexpr int64_t kAny = int64_t{1} << 40;
    const int64_t layers = sequence_.num_layers, experts = sequence_.num_experts;
    const Row most = {kAny, kAny, kAny, layers - 1, experts - 1, experts - 1};
    Row row = {};
    std::string_view rest = line_;
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = TakeNumber(rest, most[i]);
      if (!rest.starts_with(',')) Refuse("row", std::string(kColumns) + "...", line_);
      rest.remove_prefix(1);
    }
    return row;
  }

  void AddRow(const Row& row) {
    const bool first = batch_.empty();
    if (!first && !std::equal(row.begin(), row.begin() + kSlot, last_.begin())) {
      sequence_.EndBatch();
      // A prompt's rows go layer by layer, a token's are followed by the next one's first layer.
      const bool wraps = row[kLayer] < last_[kLayer];
      if (wraps || row[kPhase] != last_[kPhase] || row[kTurn] != last_[kTurn]) sequence_.EndPass();
      batch_.clear();
    }
    if (std::find(batch_.begin(), batch_.end(), row[kExpert]) != batch_.end()) {
      Refuse("expert", "each expert of a batch once", line_);
    }
    batch_.push_back(row[kExpert]);
    sequence_.Append(static_cast<int32_t>(row[kLayer] * sequence_.num_experts + row[kExpert]));
    last_ = row;
  }

  const std::string& name_;
  std::string_view text_;
  size_t at_ = 0;
  std::string_view line_;
  int64_t line_number_ = 0;
  AccessSequence sequence_;
  std::vector<int64_t> batch_;  // experts of the batch so far
  Row last_ = {};
};

}  // namespace

AccessSequence ReadRouteTrace(const BlockReader& file, const ReadProgressFn& progress) {
  if (file.size_bytes() > kMaxBytes) {
    throw Error(ErrorCode::kUnsupported, file.name(), "size of an expert trace",
                "at most " + FormatSize(kMaxBytes), FormatSize(file.size_bytes()));
  }
  std::string text(file.size_bytes(), '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(text)));
  return RouteTraceParser(file.name(), text).Parse(progress);
}

}  // namespace hearth
