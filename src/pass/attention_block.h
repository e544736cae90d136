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
  explicit AttentionBlock(const PassContext& context);

  // Fills a.cos and a.sin for the positions of the rows; once per pass.
  void Turn(const PassRows& rows, const Activations& a) const;

  // block_out = W_o attention(rope(W_q x), rope(W_k x), W_v x), x = norm(hidden). Keys and values
  // go into the caches of the rows.
  void Run(int64_t layer, const PassRows& rows, const Activations& a) const;

 private:
  void Project(int64_t layer, const Activations& a) const;
  void Rotate(int64_t layer, const Activations& a) const;
  void Store(int64_t layer, const PassRows& rows, const Activations& a) const;
  void Attend(int64_t layer, const PassRows& rows, const Activations& a) const;

  const PassContext& context_;
  std::vector<double> frequencies_;  // radians per position, a value per rotated pair
};

}  // namespace hearth
