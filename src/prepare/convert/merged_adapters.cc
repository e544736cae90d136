#include "prepare/convert/merged_adapters.h"

#include <algorithm>

#include "engine/load/model.h"
#include "import/adapter_file.h"

namespace hearth {
namespace {

// numbers[i] += factor * B A in one row of the pair, from column `col` on.
void AddToRow(const LowRankPair& pair, double factor, uint64_t row, uint64_t col,
              std::span<float> numbers) {
  std::vector<double> sums(numbers.size());
  for (uint64_t i = 0; i < static_cast<uint64_t>(pair.rank); ++i) {
    const double b = pair.b[i * static_cast<uint64_t>(pair.rows) + row];
    const float* const a = pair.a + i * static_cast<uint64_t>(pair.cols) + col;
    for (size_t c = 0; c < sums.size(); ++c) sums[c] += b * double{a[c]};
  }
  for (size_t c = 0; c < sums.size(); ++c) {
    numbers[c] = static_cast<float>(double{numbers[c]} + factor * sums[c]);
  }
}

}  // namespace

MergedAdapters::MergedAdapters(const GgufFile& base, std::span<const AdapterOption> adapters,
                               Budget& budget) {
  const ModelSpec spec = PlanLoad(base).spec;
  std::vector<AdapterPlan> plans;
  for (const AdapterOption& adapter : adapters) {
    plans.push_back(PlanAdapter(adapter, spec, FfnStorage::kMatrices));
  }
  adapters_ = AdapterSet(plans, spec.num_layers, budget);
  for (size_t i = 0; i < plans.size(); ++i) {
    for (const PlannedPair& planned : plans[i].pairs) {
      const LowRankPair& pair = adapters_.at(i).weights().Of(planned.layer, planned.which);
      const std::string& name = planned.a->name;
      terms_[name.substr(0, name.size() - kLoraA.size())].push_back(
          {.pair = &pair,
           .first_row = static_cast<uint64_t>(planned.first_row),
           .factor = pair.scale * double{adapters[i].weight}});
    }
  }
}

void MergedAdapters::AddTo(const GgufTensor& tensor, uint64_t first,
                           std::span<float> numbers) const {
  const auto found = terms_.find(tensor.name);
  if (found == terms_.end()) return;
  const uint64_t cols = tensor.ne[0];
  for (size_t done = 0; done < numbers.size();) {
    const uint64_t row = (first + done) / cols, col = (first + done) % cols;
    const size_t some = std::min<uint64_t>(cols - col, numbers.size() - done);
    for (const Term& term : found->second) {
      if (row < term.first_row || row - term.first_row >= static_cast<uint64_t>(term.pair->rows)) {
        continue;
      }
      AddToRow(*term.pair, term.factor, row - term.first_row, col, numbers.subspan(done, some));
    }
    done += some;
  }
}

}  // namespace hearth
