// FFNs of single neurons of which only a part is in memory.
#pragma once

#include <span>

#include "pass/neuron_ffn.h"
#include "pipeline/streamed_ffns.h"

namespace hearth {

class StreamedNeuronFfn : public NeuronFfn {
 public:
  StreamedNeuronFfn(const PassContext& context, const PassWidths& widths, Budget& budget,
                    StreamedFfns& streamed)
      : NeuronFfn(context, widths, budget),
        streamed_(streamed),
        tokens_together_(widths.tokens_together) {}
  void Begin(const FfnPass& pass) override;
  void End() noexcept override { streamed_.EndToken(); }
  void AfterOp(PassOp op) noexcept override;
  bool waits() const override { return true; }
  void Watch(NeuronMap* map) override;

 protected:
  void RunStep(const FfnCall& call) override;

 private:
  StreamedFfn FfnOf(const FfnCall& call) const;
  // Begins to read what the next layer will probably list.
  void LookAhead(const FfnCall& call);
  // Tells the observer what all neurons do, listed or not; call.out is scratch.
  void Observe(const FfnCall& call);
  // Tokens of a prompt together, range by range.
  void RunMany(const FfnCall& call, const SparsePrefill::Choice& choice,
               const SparsePrefill::BlockFn& after_block);
  // All neurons of tokens that are decoded, range by range.
  void RunRanges(const FfnCall& call);
  // What tokens that are decoded list or fire, neuron by neuron.
  void RunLists(const FfnCall& call);
  // All neurons, for every token: what is neither pinned nor in the cache is read, and what lies
  // alone in the cache too.
  void DrawRanges(const FfnCall& call);

  StreamedFfns& streamed_;
  int64_t tokens_together_;
};

}  // namespace hearth
