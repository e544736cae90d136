#include "pass/pass_rows.h"

namespace hearth {
namespace {

void Remove(std::span<const BatchSequence> sequences) noexcept {
  for (const BatchSequence& sequence : sequences) {
    KvSequence& kv = *sequence.kv;
    kv.Truncate(kv.length() - static_cast<int64_t>(sequence.tokens.size()));
  }
}

void Append(std::span<const BatchSequence> sequences) {
  size_t placed = 0;
  try {
    for (; placed < sequences.size(); ++placed) {
      sequences[placed].kv->Append(static_cast<int64_t>(sequences[placed].tokens.size()));
    }
  } catch (...) {
    Remove(sequences.first(placed));
    throw;
  }
}

}  // namespace

void RemoveRows(const PassShape& shape) noexcept { Remove(shape.sequences); }

void PassRows::Place(const PassShape& shape) {
  KvPool& pool = shape.sequences.front().kv->pool();
  pool.BeginPass();
  Append(shape.sequences);
  std::vector<const KvSequence*> used;
  for (const BatchSequence& sequence : shape.sequences) used.push_back(sequence.kv);
  pool.Use(used);
  kind = shape.kind;
  tokens.clear();
  positions.clear();
  sequences.clear();
  pages.clear();
  for (const BatchSequence& sequence : shape.sequences) {
    const auto count = static_cast<int64_t>(sequence.tokens.size());
    const int64_t first = sequence.kv->length() - count;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(sequence.tokens[static_cast<size_t>(i)]);
      positions.push_back(first + i);
      sequences.push_back(sequence.kv);
      pages.push_back(sequence.kv->pages());
    }
  }
}

}  // namespace hearth
