// Norm, RoPE, softmax, activations and additions. Operands stay in the caches, as they do in a
// pass.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/micro/micro.h"

namespace hearth::micro {
namespace {

using kernels::FfnActivation;
using kernels::KernelTable;
using kernels::RopeLayout;

constexpr int64_t kHiddenSize = 4096;
constexpr int64_t kIntermediateSize = 14336;
constexpr int64_t kRotatedPairs = 64;
constexpr int64_t kScores = 256;

// Calls fn over and over; it computes n elements.
template <class Fn>
void Repeat(benchmark::State& state, int64_t n, Fn fn) {
  for (auto _ : state) {
    fn();
    benchmark::ClobberMemory();
  }
  CountItems(state, n);
}

void RegisterNormAndAdds(const Context& context) {
  const KernelTable& table = context.table;
  Register(context, "rms_norm", BoundBy::kCompute, [&table](benchmark::State& state) {
    const std::vector<float> x = SomeFloats(kHiddenSize), weight = x;
    std::vector<float> out(kHiddenSize);
    Repeat(state, kHiddenSize,
           [&] { table.rms_norm(x.data(), weight.data(), kHiddenSize, 1e-5f, out.data()); });
  });
  Register(context, "add", BoundBy::kCompute, [&table](benchmark::State& state) {
    const std::vector<float> x = SomeFloats(kHiddenSize);
    std::vector<float> out(kHiddenSize);
    Repeat(state, kHiddenSize, [&] { table.add(x.data(), kHiddenSize, out.data()); });
  });
  Register(context, "scaled_add", BoundBy::kCompute, [&table](benchmark::State& state) {
    const std::vector<float> x = SomeFloats(kHiddenSize);
    std::vector<float> out(kHiddenSize);
    Repeat(state, kHiddenSize, [&] { table.scaled_add(x.data(), 0.5f, kHiddenSize, out.data()); });
  });
}

void RegisterRope(const Context& context) {
  const KernelTable& table = context.table;
  for (const RopeLayout layout : {RopeLayout::kAdjacent, RopeLayout::kHalves}) {
    const char* name = layout == RopeLayout::kAdjacent ? "rope/adjacent" : "rope/halves";
    Register(context, name, BoundBy::kCompute, [&table, layout](benchmark::State& state) {
      std::vector<float> x = SomeFloats(2 * kRotatedPairs);
      const std::vector<float> cos(kRotatedPairs, 0.6f), sin(kRotatedPairs, 0.8f);
      Repeat(state, 2 * kRotatedPairs,
             [&] { table.rope(x.data(), cos.data(), sin.data(), kRotatedPairs, layout); });
    });
  }
}

void RegisterSoftmax(const Context& context) {
  const KernelTable& table = context.table;
  Register(context, "softmax", BoundBy::kCompute, [&table](benchmark::State& state) {
    std::vector<float> x = SomeFloats(kScores);
    Repeat(state, kScores, [&] { table.softmax(x.data(), kScores); });
  });
}

// Gates of a prompt, as many as a token's word of bits stands for; one in ten fires.
void RegisterPackFired(const Context& context) {
  const KernelTable& table = context.table;
  Register(context, "pack_fired", BoundBy::kCompute, [&table](benchmark::State& state) {
    constexpr int64_t kGatesOfWord = 64, kTenth = kIntermediateSize / 10;
    const std::vector<float> gates = SomeFloats(kIntermediateSize);
    std::vector<float> sorted = gates, out_gates(kGatesOfWord);
    std::nth_element(sorted.begin(), sorted.end() - kTenth, sorted.end());
    const float below = *(sorted.end() - kTenth), none = std::nanf("");
    std::vector<int32_t> neurons(kGatesOfWord), out_neurons(kGatesOfWord);
    std::iota(neurons.begin(), neurons.end(), 0);
    uint64_t fired = 0;
    Repeat(state, kIntermediateSize, [&] {
      for (int64_t i = 0; i < kIntermediateSize; i += kGatesOfWord) {
        table.pack_fired({neurons.data(), gates.data() + i, kGatesOfWord, below, none, none,
                          nullptr, &fired, out_neurons.data(), out_gates.data()});
      }
    });
  });
}

void RegisterActivations(const Context& context) {
  const KernelTable& table = context.table;
  static constexpr const char* kNames[] = {
      "silu", "relu", "fatrelu", "drelu", "thresholded_silu", "gelu", "gelu_erf", "clamped_swiglu"};
  static_assert(std::size(kNames) == kernels::kNumFfnActivations);
  for (size_t kind = 0; kind < std::size(kNames); ++kind) {
    Register(context, std::string("ffn_activation/") + kNames[kind], BoundBy::kCompute,
             [&table, kind](benchmark::State& state) {
               const std::vector<float> gate = SomeFloats(kIntermediateSize), up = gate;
               std::vector<float> out(kIntermediateSize);
               Repeat(state, kIntermediateSize, [&] {
                 table.ffn_activation[kind](gate.data(), up.data(), kIntermediateSize, 0.01f,
                                            out.data());
               });
             });
  }
}

}  // namespace

void RegisterElementwise(const Context& context) {
  RegisterNormAndAdds(context);
  RegisterRope(context);
  RegisterSoftmax(context);
  RegisterPackFired(context);
  RegisterActivations(context);
}

}  // namespace hearth::micro
