#include "sparsity/selector.h"

namespace hearth {

OracleSelector::OracleSelector(int64_t num_layers, int64_t num_experts, int64_t num_tokens)
    : num_experts_(num_experts),
      num_tokens_(num_tokens),
      lists_(static_cast<size_t>(num_layers * num_experts * num_tokens)) {}

OracleSelector::NeuronList& OracleSelector::At(int64_t layer, int64_t expert, int64_t token) {
  return lists_[static_cast<size_t>((layer * num_experts_ + expert) * num_tokens_ + token)];
}

void OracleSelector::Select(const SelectionQuery& query, ActiveSets& out) {
  const auto lists = out.ResetLists(query.tokens.size());
  for (size_t i = 0; i < lists.size(); ++i) {
    lists[i] = At(query.layer, query.expert, query.tokens[i]);
  }
}

}  // namespace hearth
