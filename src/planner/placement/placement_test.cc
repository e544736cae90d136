#include "planner/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random_words.h"
#include "base/rounding.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-6;  // of the solver, relative

// The device saves 1 s per neuron, so that C_l is sync_seconds.
PlacementProblem Problem(std::vector<PlacementFfn> ffns, int64_t device_neurons, double sync) {
  PlacementProblem problem;
  problem.ffns = std::move(ffns);
  problem.neuron_bytes = 1000;
  problem.device_bytes = static_cast<uint64_t>(device_neurons) * 1000 + 999;
  problem.device_bytes_per_s = 1000;
  problem.host_bytes_per_s = 500;
  problem.sync_seconds = sync;
  return problem;
}

PlacementFfn Ffn(int64_t layer, std::vector<double> impacts, int64_t neurons = 0) {
  const auto batches = static_cast<int64_t>(impacts.size());
  return {layer, neurons > 0 ? neurons : batches * kPlacementBatch, std::move(impacts)};
}

std::vector<double> Descending(RandomWords& random, int64_t count, bool ties) {
  std::vector<double> impacts(static_cast<size_t>(count));
  for (double& impact : impacts) {
    impact = ties ? static_cast<double>(random.NextBelow(4)) : 64 * random.NextUnit();
  }
  std::sort(impacts.rbegin(), impacts.rend());
  return impacts;
}

int64_t NeuronsAt(const PlacementFfn& ffn, int64_t batches) {
  return std::min(batches * kPlacementBatch, ffn.neurons);
}

// Whether the constraints of P1 hold for so many batches of each FFN.
bool IsFeasible(const PlacementProblem& problem, const std::vector<int64_t>& batches) {
  const auto least = LeastNeurons(problem);
  int64_t device = 0, all = 0;
  std::vector<int64_t> of_layer(static_cast<size_t>(problem.num_layers()), 0);
  for (size_t f = 0; f < batches.size(); ++f) {
    const int64_t neurons = NeuronsAt(problem.ffns[f], batches[f]);
    device += neurons;
    all += problem.ffns[f].neurons;
    of_layer[static_cast<size_t>(problem.ffns[f].layer)] += neurons;
  }
  for (const int64_t neurons : of_layer) {
    if (neurons > 0 && (!least || neurons < *least)) return false;
  }
  const auto bytes = [&](int64_t neurons) {
    return static_cast<uint64_t>(neurons) * problem.neuron_bytes;
  };
  return bytes(device) <= problem.device_bytes &&
         (!problem.host_bytes || bytes(all - device) <= *problem.host_bytes);
}

double ImpactOf(const PlacementProblem& problem, const std::vector<int64_t>& batches) {
  double impact = 0;
  for (size_t f = 0; f < batches.size(); ++f) {
    const std::vector<double>& impacts = problem.ffns[f].impacts;
    impact += std::accumulate(impacts.begin(), impacts.begin() + batches[f], 0.0);
  }
  return impact;
}

// The best of all placements; below 0 where there is none.
double Exhaustive(const PlacementProblem& problem) {
  std::vector<int64_t> batches(problem.ffns.size(), 0);
  double best = -1;
  for (;;) {
    if (IsFeasible(problem, batches)) best = std::max(best, ImpactOf(problem, batches));
    size_t f = 0;
    while (f < batches.size() &&
           batches[f] == static_cast<int64_t>(problem.ffns[f].impacts.size())) {
      batches[f++] = 0;
    }
    if (f == batches.size()) return best;
    ++batches[f];
  }
}

// The hottest batches first; what then breaks (4) is taken back. What a simple planner would do.
double Greedy(const PlacementProblem& problem) {
  struct Candidate {
    double impact;
    size_t ffn;
    int64_t batch;
  };
  std::vector<Candidate> candidates;
  for (size_t f = 0; f < problem.ffns.size(); ++f) {
    for (size_t b = 0; b < problem.ffns[f].impacts.size(); ++b) {
      candidates.push_back({problem.ffns[f].impacts[b], f, static_cast<int64_t>(b)});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.impact > b.impact; });
  std::vector<int64_t> batches(problem.ffns.size(), 0);
  auto room = static_cast<int64_t>(problem.device_bytes / problem.neuron_bytes);
  for (const Candidate& candidate : candidates) {
    const PlacementFfn& ffn = problem.ffns[candidate.ffn];
    const int64_t size = NeuronsAt(ffn, candidate.batch + 1) - NeuronsAt(ffn, candidate.batch);
    if (batches[candidate.ffn] != candidate.batch || size > room) continue;
    ++batches[candidate.ffn];
    room -= size;
  }
  for (int64_t layer = 0; layer < problem.num_layers(); ++layer) {
    const auto least = LeastNeurons(problem);
    int64_t neurons = 0;
    for (size_t f = 0; f < batches.size(); ++f) {
      if (problem.ffns[f].layer == layer) neurons += NeuronsAt(problem.ffns[f], batches[f]);
    }
    if (least && neurons >= *least) continue;
    for (size_t f = 0; f < batches.size(); ++f) {
      if (problem.ffns[f].layer == layer) batches[f] = 0;
    }
  }
  return ImpactOf(problem, batches);
}

std::vector<int64_t> BatchesOf(const Placement& placement) {
  std::vector<int64_t> batches;
  for (const int64_t neurons : placement.device_neurons) {
    batches.push_back(DivideUp(neurons, kPlacementBatch));
  }
  return batches;
}

std::string MessageOf(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

PlacementProblem RandomProblem(RandomWords& random, bool whole_batches) {
  const bool ties = random.NextBelow(3) == 0;
  const bool alike = random.NextBelow(3) == 0;  // all layers
  const auto layers = static_cast<int64_t>(1 + random.NextBelow(3));
  const auto experts = static_cast<int64_t>(1 + random.NextBelow(2));
  const auto batches = static_cast<int64_t>(1 + random.NextBelow(5));
  const int64_t missing = whole_batches ? 0 : static_cast<int64_t>(random.NextBelow(64));
  const std::vector<double> shared = Descending(random, batches, ties);
  std::vector<PlacementFfn> ffns;
  for (int64_t i = 0; i < layers * experts; ++i) {
    ffns.push_back(Ffn(i / experts, alike ? shared : Descending(random, batches, ties),
                       batches * kPlacementBatch - missing));
  }
  const int64_t all = layers * experts * batches * kPlacementBatch;
  const auto most = static_cast<int64_t>(random.NextBelow(static_cast<uint64_t>(all * 5 / 4)));
  const auto sync = static_cast<double>(
      random.NextBelow(static_cast<uint64_t>(experts * batches * kPlacementBatch * 5 / 4)));
  PlacementProblem problem = Problem(std::move(ffns), most, sync);
  if (random.NextBelow(3) == 0) {
    problem.host_bytes = 1000 * random.NextBelow(static_cast<uint64_t>(all));
  }
  return problem;
}

void ExpectBest(const PlacementProblem& problem, PlacementForm form) {
  const double best = Exhaustive(problem);
  if (best < 0) {
    EXPECT_THAT(MessageOf([&] { SolvePlacement(problem, form); }, ErrorCode::kOutOfBudget),
                AnyOf(HasSubstr("the neurons take"), HasSubstr("communication")));
    return;
  }
  const Placement placement = SolvePlacement(problem, form);
  EXPECT_TRUE(IsFeasible(problem, BatchesOf(placement)));
  EXPECT_NEAR(placement.impact, best, kTolerance * (1 + best));
  EXPECT_NEAR(placement.impact, ImpactOf(problem, BatchesOf(placement)), 1e-9 * (1 + best));
  if (!problem.host_bytes) {
    EXPECT_GE(placement.impact, Greedy(problem) * (1 - kTolerance));
  }
}

TEST(PlacementTest, EqualsExhaustiveSearchInBothForms) {
  RandomWords random(1);
  for (int i = 0; i < 120; ++i) {
    SCOPED_TRACE(i);
    const PlacementProblem problem = RandomProblem(random, true);
    ExpectBest(problem, PlacementForm::kByLayer);
    ExpectBest(problem, PlacementForm::kByBatch);
  }
}

TEST(PlacementTest, EqualsExhaustiveSearchWithOddLastBatches) {
  RandomWords random(2);
  for (int i = 0; i < 80; ++i) {
    SCOPED_TRACE(i);
    ExpectBest(RandomProblem(random, false), PlacementForm::kShortest);
  }
}

TEST(PlacementTest, IsAtLeastGreedyAtScale) {
  RandomWords random(3);
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    std::vector<PlacementFfn> ffns;
    for (int64_t layer = 0; layer < 40; ++layer) {
      ffns.push_back(Ffn(layer, Descending(random, 320, i % 2 == 0)));
    }
    const auto most = static_cast<int64_t>(random.NextBelow(40 * 320 * kPlacementBatch));
    const auto sync = static_cast<double>(random.NextBelow(320 * kPlacementBatch));
    const PlacementProblem problem = Problem(std::move(ffns), most, sync);
    const Placement placement = SolvePlacement(problem);
    EXPECT_TRUE(IsFeasible(problem, BatchesOf(placement)));
    EXPECT_GE(placement.impact, Greedy(problem) * (1 - kTolerance));
  }
}

// As large as opt-175b, every layer with rates of its own.
TEST(PlacementTest, SolvesTheLargestModels) {
  RandomWords random(5);
  std::vector<PlacementFfn> ffns;
  for (int64_t layer = 0; layer < 96; ++layer) {
    const double exponent = 0.3 + random.NextUnit();
    std::vector<double> impacts;
    for (int b = 0; b < 768; ++b) {
      impacts.push_back(std::min(62.7, 3 * std::pow((b + 0.5) / 768, -exponent)));
    }
    ffns.push_back(Ffn(layer, std::move(impacts)));
  }
  const PlacementProblem problem = Problem(std::move(ffns), 27'000 * kPlacementBatch, 113);
  const Placement placement = SolvePlacement(problem);
  EXPECT_TRUE(IsFeasible(problem, BatchesOf(placement)));
  EXPECT_GE(placement.impact, Greedy(problem) * (1 - kTolerance));
}

// Greedy puts the hottest batch of every layer on the device and then has to take all back.
TEST(PlacementTest, GathersNeuronsInFewLayersWhereSynchronizationCosts) {
  const PlacementProblem problem =
      Problem({Ffn(0, {10, 2}), Ffn(1, {9, 3}), Ffn(2, {8, 1})}, 128, 100);
  const Placement placement = SolvePlacement(problem);
  EXPECT_THAT(placement.device_neurons, ::testing::ElementsAre(128, 0, 0));
  EXPECT_EQ(placement.impact, 12);
  EXPECT_EQ(Greedy(problem), 0);
  EXPECT_EQ(placement.bound, PlacementBound::kDeviceMemory);
}

TEST(PlacementTest, SharesABlockOfEqualLayersEvenly) {
  const Placement placement =
      SolvePlacement(Problem({Ffn(0, {9, 9, 1}), Ffn(1, {9, 9, 1}), Ffn(2, {9, 9, 1})}, 320, 0));
  EXPECT_THAT(placement.device_neurons, ::testing::ElementsAre(128, 128, 64));
}

TEST(PlacementTest, TheUniformFormGivesEveryLayerTheSame) {
  const std::vector<PlacementFfn> ffns = {Ffn(0, {90, 4, 1}), Ffn(1, {3, 2, 1})};
  const auto solve = [&](int64_t room, double sync) {
    return SolvePlacement(Problem(ffns, room, sync), PlacementForm::kUniform);
  };
  EXPECT_THAT(solve(319, 100).device_neurons, ::testing::ElementsAre(128, 128));
  EXPECT_EQ(solve(319, 100).impact, 99);
  EXPECT_EQ(solve(319, 100).bound, PlacementBound::kDeviceMemory);
  EXPECT_THAT(solve(1000, 0).device_neurons, ::testing::ElementsAre(192, 192));
  EXPECT_EQ(solve(1000, 0).bound, PlacementBound::kNone);
  // Fewer than C_l of each layer are none.
  EXPECT_THAT(solve(319, 129).device_neurons, Each(0));
  EXPECT_EQ(solve(319, 129).bound, PlacementBound::kCommunication);
  EXPECT_THAT(solve(127, 0).device_neurons, Each(0));
}

TEST(PlacementTest, SaysWhatBinds) {
  const std::vector<PlacementFfn> ffns = {Ffn(0, {5, 4}), Ffn(1, {3, 2})};
  EXPECT_EQ(SolvePlacement(Problem(ffns, 1000, 0)).bound, PlacementBound::kNone);
  EXPECT_EQ(SolvePlacement(Problem(ffns, 1000, 128)).bound, PlacementBound::kNone);
  EXPECT_EQ(SolvePlacement(Problem(ffns, 130, 0)).bound, PlacementBound::kDeviceMemory);
  EXPECT_EQ(SolvePlacement(Problem(ffns, 200, 128)).bound, PlacementBound::kCommunication);
  const Placement none = SolvePlacement(Problem(ffns, 1000, 129));
  EXPECT_EQ(none.bound, PlacementBound::kCommunication);
  EXPECT_THAT(none.device_neurons, Each(0));
  PlacementProblem slow = Problem(ffns, 1000, 0);
  slow.device_bytes_per_s = 400;
  EXPECT_THAT(SolvePlacement(slow).device_neurons, Each(0));
}

TEST(PlacementTest, LeastNeuronsIsTheTurningPointOfInequality4) {
  RandomWords random(4);
  for (int i = 0; i < 1000; ++i) {
    PlacementProblem problem;
    problem.neuron_bytes = 1 + random.NextBelow(1 << 20);
    problem.device_bytes_per_s = 1e12 * (0.01 + random.NextUnit());
    problem.host_bytes_per_s = 1e11 * (0.01 + random.NextUnit());
    problem.sync_seconds = 1e-4 * random.NextUnit();
    problem.computed_share = 0.05 + 0.95 * random.NextUnit();
    const auto least = LeastNeurons(problem);
    const auto bytes = problem.computed_share * static_cast<double>(problem.neuron_bytes);
    const auto pays = [&](double neurons) {
      return neurons * bytes / problem.device_bytes_per_s + problem.sync_seconds <=
             neurons * bytes / problem.host_bytes_per_s * (1 + 1e-12);
    };
    if (least) {
      EXPECT_TRUE(pays(static_cast<double>(*least)));
      EXPECT_FALSE(pays(static_cast<double>(*least) * (1 - 1e-9) - 1));
    } else {
      EXPECT_FALSE(pays(1e15));
    }
  }
}

TEST(PlacementTest, NamesTheConstraintThatCannotHold) {
  PlacementProblem small = Problem({Ffn(0, {5, 4})}, 64, 0);
  small.host_bytes = 63 * 1000;
  EXPECT_THAT(MessageOf([&] { SolvePlacement(small); }, ErrorCode::kOutOfBudget),
              AllOf(HasSubstr("the neurons take"), HasSubstr("device"), HasSubstr("host")));
  PlacementProblem costly = Problem({Ffn(0, {5, 4}), Ffn(1, {5, 4})}, 100, 128);
  costly.host_bytes = 200 * 1000;
  for (const PlacementForm form : {PlacementForm::kByLayer, PlacementForm::kByBatch}) {
    EXPECT_THAT(MessageOf([&] { SolvePlacement(costly, form); }, ErrorCode::kOutOfBudget),
                AllOf(HasSubstr("communication"), HasSubstr("128 neurons")));
  }
}

TEST(PlacementTest, RefusesWhatIsNoProblem) {
  const auto refuse = [](const std::function<void(PlacementProblem&)>& spoil) {
    PlacementProblem problem = Problem({Ffn(0, {5, 4}), Ffn(1, {3, 2})}, 100, 1);
    spoil(problem);
    EXPECT_NE(MessageOf([&] { SolvePlacement(problem); }, ErrorCode::kInvalidArgument), "");
  };
  refuse([](PlacementProblem& p) { p.ffns.clear(); });
  refuse([](PlacementProblem& p) { p.ffns[1].layer = 2; });
  refuse([](PlacementProblem& p) { p.ffns[0].neurons = 129; });
  refuse([](PlacementProblem& p) { p.ffns[0].impacts = {1, 2}; });
  refuse([](PlacementProblem& p) { p.ffns[0].impacts[1] = -1; });
  refuse([](PlacementProblem& p) { p.ffns[0].impacts[0] = std::nan(""); });
  refuse([](PlacementProblem& p) { p.neuron_bytes = 0; });
  refuse([](PlacementProblem& p) { p.device_bytes_per_s = 0; });
  refuse([](PlacementProblem& p) { p.host_bytes_per_s = -1; });
  refuse([](PlacementProblem& p) { p.sync_seconds = -1; });
  const PlacementProblem odd = Problem({Ffn(0, {5, 4}, 100)}, 100, 1);
  EXPECT_NE(
      MessageOf([&] { SolvePlacement(odd, PlacementForm::kByLayer); }, ErrorCode::kInvalidArgument),
      "");
}

TEST(PlacementTest, BatchesSumTheRatesOfTheirNeurons) {
  std::vector<double> rates(130, 0.25);
  rates[0] = 0.75;
  const PlacementFfn ffn = BatchNeurons(7, rates);
  EXPECT_EQ(ffn.layer, 7);
  EXPECT_EQ(ffn.neurons, 130);
  EXPECT_THAT(ffn.impacts, ::testing::ElementsAre(16.5, 16, 0.5));
}

}  // namespace
}  // namespace hearth
