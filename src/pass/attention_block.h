// Attention with grouped queries and rotary positions over KV pages, as a block of the pass.
#pragma once

#include <cstdint>
#include <vector>

#include "pass/activations.h"
#include "pass/pass_context.h"
#include "pass/pass_rows.h"

namespace hearth {

// One thread at a time. Allocates nothing after its construction.
class AttentionBlock {
 public:
  // max_context: of any sequence; LongRoPE goes by it.
  AttentionBlock(const PassContext& context, int64_t max_context);

  // Fills a.cos and a.sin for the positions of the rows; once per pass.
  void Turn(const PassRows& rows, const Activations& a) const;

  // block_out = W_o attention(rope(W_q x), rope(W_k x), W_v x), x = norm(hidden). Keys and values
  // go into the caches of the rows.
  void Run(int64_t layer, const PassRows& rows, const Activations& a) const;

  // Puts rotated keys and values of a layer into the caches of the rows.
  void Store(int64_t layer, const PassRows& rows, FloatView keys, FloatView values) const;

 private:
  void RunOnDevice(int64_t layer, const Activations& a) const;
  void RunHere(int64_t layer, const PassRows& rows, const Activations& a) const;
  UnitMatrices OnDevice(int64_t layer) const;
  void Project(int64_t layer, const UnitMatrices& on_device, const Activations& a) const;
  void NormQueriesAndKeys(const LayerSpec& spec, const LayerWeights& w, const Activations& a) const;
  void Rotate(int64_t layer, const PassRows& rows, const Activations& a) const;
  void Attend(int64_t layer, const PassRows& rows, const Activations& a) const;

  const WeightView& FactorsOf(const RopeSpec& rope, int64_t max_context) const;
  // Where Turn leaves the angles of a rotary embedding; number `table` of tables_.
  FloatView AnglesOf(const FloatView& all, int64_t table, const PassRows& rows) const;

  // A rotary embedding that layers have.
  struct Table {
    RopeSpec rope;
    std::vector<double> frequencies;  // radians per position, a value per rotated pair
  };

  const PassContext& context_;
  std::vector<Table> tables_;
  std::vector<int64_t> table_of_layer_;  // -1: nothing is rotated
};

}  // namespace hearth
