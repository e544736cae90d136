// FFNs of single neurons (a packed file's), in memory: those that are listed, or fire (P1 section
// 5.4).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ops/sparse_batch.h"
#include "ops/sparse_ffn.h"
#include "ops/sparse_prefill.h"
#include "pass/ffn_executor.h"

namespace hearth {

// The operators of single neurons, each for another number of tokens.
struct NeuronOperators {
  // Charged as "activations". Throws Error(kOutOfBudget).
  NeuronOperators(Budget& budget, const PassWidths& widths);
  static uint64_t ChargedBytes(const PassWidths& widths);

  SparseFfn one;
  std::optional<SparseBatch> few;  // where tokens are computed together at all
  SparsePrefill many;
};

// The neurons that each token computes. A selector tells of some tokens at a time.
class NeuronLists {
 public:
  // Tokens that a selector is asked about at a time, at most.
  static constexpr int64_t kTokensOfQuery = 32;

  // Asks the selector. `prompt`, where it is not null, is told the lists of all tokens; without it
  // `query` has at most kTokensOfQuery tokens, whose lists are kept here.
  void Ask(Compute& compute, ActivationSelector& selector, const SelectionQuery& query,
           SparsePrefill* prompt);
  // visit(first, lists) for some tokens at a time, `first` being their place in query.tokens. Ends
  // where all neurons are meant.
  using Visit = std::function<void(int64_t first, std::span<const std::span<const int32_t>> lists)>;
  void VisitSteps(ActivationSelector& selector, const SelectionQuery& query, const Visit& visit);

  // Whether tokens of the last Ask list neurons; else all are meant.
  bool has_lists() const { return has_lists_; }
  // Of the tokens [first, first + count) of the last Ask; empty where all neurons are meant.
  SparseBatch::Lists Of(int64_t first, int64_t count) const;
  // Of one token; nothing means all. Valid until the next call.
  std::optional<std::span<const int32_t>> Of(int64_t token);

 private:
  ActiveSets active_;
  SparsePrefill* prompt_ = nullptr;
  bool has_lists_ = false;
  std::vector<int32_t> listed_;
};

// What FFNs of single neurons have in common, wherever the neurons are.
class NeuronFfn : public FfnExecutor {
 public:
  NeuronFfn(const PassContext& context, const PassWidths& widths, Budget& budget);
  void Begin(const FfnPass& pass) override { pass_ = pass; }
  // In steps: outside of prompts, only the selector's last answer is kept, so that a step has no
  // more tokens than it answers for at a time.
  void Run(const FfnCall& call) final;
  SparseFfnCounts counts() const override { return counts_; }
  void Watch(NeuronMap* map) override;

 protected:
  // Runs the tokens of one step.
  virtual void RunStep(const FfnCall& call) = 0;

  void Select(const FfnCall& call);
  // What to ask the predictor of the next layer, to guess its lists; nothing where there is none.
  // Uses call.out as scratch.
  std::optional<SelectionQuery> QueryOfNext(const FfnCall& call) const;
  void ObserveInput(const FfnCall& call);
  // run(x, lists, out) for the rows of the input, as many at a time as are computed together.
  using BatchFn = std::function<void(FloatView x, SparseBatch::Lists lists, FloatView out)>;
  void ForEachBatch(FloatView out, const BatchFn& run);
  // What operators_.many computed for a token. Gather collects it block by block, and TellObserver
  // passes it on after the last one.
  struct Observed {
    std::vector<int32_t> fired, active;
    std::vector<float> factors;
  };
  SparsePrefill::BlockFn Gather(std::vector<Observed>& of_tokens);
  void TellObserver(const std::vector<Observed>& of_tokens, const FfnCall& call, int64_t neurons);
  // What all tokens of the call have in common.
  NeuronObservation ObservationOf(const FfnCall& call) const;
  // Whether neurons that add nothing are left out.
  bool SkipsSilent(const FfnCall& call) const;
  // Draws the neurons that fired, all of them in memory, after an operator computed `tokens`
  // together.
  template <class Operator>
  void DrawFired(const FfnCall& call, int64_t tokens, const Operator& op);

  const PassContext& context_;
  NeuronOperators operators_;
  NeuronLists lists_;
  FfnPass pass_;
  bool is_prompt_ = false;      // of the step: operators_.many computes it
  NeuronMap* map_ = nullptr;    // null where nobody looks
  std::vector<int32_t> fired_;  // of one token
  SparseFfnCounts counts_;
};

class ResidentNeuronFfn : public NeuronFfn {
 public:
  using NeuronFfn::NeuronFfn;

 protected:
  void RunStep(const FfnCall& call) override;

 private:
  void RunMany(const FfnNeurons& ffn, const FfnCall& call);
  void RunFew(const FfnNeurons& ffn, const FfnCall& call);
  void RunOneByOne(const FfnNeurons& ffn, const FfnCall& call);
};

}  // namespace hearth
