// FFNs as matrices: in memory, or read extent by extent.
#pragma once

#include <cstdint>
#include <span>

#include "pass/ffn_executor.h"

namespace hearth {

// out = down(activation(gate(x), up(x))).
class MatrixFfn : public FfnExecutor {
 public:
  // `gate` and `up` are scratch, [max_tokens][intermediate_size].
  MatrixFfn(const PassContext& context, FloatView gate, FloatView up)
      : context_(context), gate_(gate), up_(up) {}
  void Begin(const FfnPass& pass) override { pass_ = pass; }
  void Run(const FfnCall& call) override;

 protected:
  // Products of the context's input.
  virtual void Multiply(int64_t layer, int64_t expert, std::span<const FfnProduct> products) = 0;
  // The same with listed neurons only, zeros elsewhere; a list per token.
  virtual void MultiplyListed(int64_t layer, int64_t expert, std::span<const FfnProduct> products,
                              std::span<const std::span<const int32_t>> lists) = 0;

  const PassContext& context_;

 private:
  // Adds the rows' biases; false where the layer has none.
  bool AddBiases(const FfnCall& call, std::span<const FfnProduct> products) const;
  // Adds what adapters make of x, the products' input; false where no row has any. Those of experts
  // are refused when they are loaded.
  bool AddAdapters(const FfnCall& call, FloatView x, std::span<const FfnProduct> products) const;

  FloatView gate_, up_;
  FfnPass pass_;
  ActiveSets active_;
};

class ResidentMatrixFfn : public MatrixFfn {
 public:
  using MatrixFfn::MatrixFfn;

 protected:
  void Multiply(int64_t layer, int64_t expert, std::span<const FfnProduct> products) override;
  void MultiplyListed(int64_t layer, int64_t expert, std::span<const FfnProduct> products,
                      std::span<const std::span<const int32_t>> lists) override;

 private:
  WeightView Matrix(int64_t layer, int64_t expert, FfnMatrix which) const;
};

class StreamedMatrixFfn : public MatrixFfn {
 public:
  StreamedMatrixFfn(const PassContext& context, FloatView gate, FloatView up,
                    StreamedMatrices& matrices)
      : MatrixFfn(context, gate, up), matrices_(matrices) {}
  void Begin(const FfnPass& pass) override;
  void End() noexcept override { matrices_.EndPass(); }
  void BeginLayer(int64_t layer, std::span<int32_t> experts, bool reorder) override {
    matrices_.BeginLayer(layer, experts, reorder);
  }
  void EndLayer() override { matrices_.EndLayer(); }
  // Experts that must be read are run last.
  bool has_order() const override { return true; }
  bool waits() const override { return true; }

 protected:
  void Multiply(int64_t layer, int64_t expert, std::span<const FfnProduct> products) override;
  void MultiplyListed(int64_t layer, int64_t expert, std::span<const FfnProduct> products,
                      std::span<const std::span<const int32_t>> lists) override;

 private:
  StreamedMatrices& matrices_;
};

}  // namespace hearth
