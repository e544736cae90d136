// From a small packed model to plans that engines obey.
#include "planner/cost/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "engine/load/obey_plan.h"
#include "format/packed_file.h"
#include "planner/cost/cost_model.h"
#include "planner/cost/test_planned_model.h"
#include "planner/doctor/test_hardware.h"

namespace hearth {
namespace {

using PlannerTest = PlannedModelTest;

TEST_F(PlannerTest, RecordsWhatTheModeAsksFor) {
  const auto predicted = ReadAccessRecord(Stem(FfnMode::kPredicted), Hash(), FfnMode::kPredicted);
  const auto gated = ReadAccessRecord(Stem(FfnMode::kGated), Hash(), FfnMode::kGated);
  ASSERT_TRUE(predicted && gated);
  EXPECT_EQ(predicted->tokens, 96);
  EXPECT_EQ(predicted->lists.num_batches(), 96 * 4);
  // Predictors list what they expect, and all of it is multiplied with the gate.
  EXPECT_DOUBLE_EQ(predicted->activity.gate * 96,
                   static_cast<double>(predicted->lists.num_accesses()));
  EXPECT_LT(predicted->activity.down, predicted->activity.up);
  EXPECT_LT(predicted->activity.up, predicted->activity.gate);
  // Gating multiplies every gate and then all that fire.
  EXPECT_EQ(gated->activity.gate, 4 * 6144);
  EXPECT_DOUBLE_EQ(gated->activity.up * 96, static_cast<double>(gated->lists.num_accesses()));
  EXPECT_FALSE(gated->guesses) << "gates are not guessed";
  EXPECT_FALSE(ReadAccessRecord(folder_->Path("none"), Hash(), FfnMode::kGated));
  EXPECT_THROW(ReadAccessRecord(Stem(FfnMode::kGated), Hash() + 1, FfnMode::kGated), Error);
  EXPECT_THROW(ReadAccessRecord(Stem(FfnMode::kGated), Hash(), FfnMode::kPredicted), Error);
}

TEST_F(PlannerTest, RecordsWhatIsExpectedALayerBefore) {
  const auto record = ReadAccessRecord(Stem(FfnMode::kPredicted), Hash(), FfnMode::kPredicted);
  ASSERT_TRUE(record && record->guesses);
  const AccessSequence& guesses = *record->guesses;
  EXPECT_EQ(guesses.num_passes(), 96);
  ASSERT_EQ(guesses.num_batches(), record->lists.num_batches());
  int64_t listed = 0, guessed = 0, right = 0;
  for (int64_t i = 0; i < guesses.num_batches(); ++i) {
    const auto list = record->lists.batch(i), guess = guesses.batch(i);
    if (i % 4 == 0) {
      EXPECT_EQ(std::vector<int32_t>(guess.begin(), guess.end()), std::vector<int32_t>{0});
      continue;
    }
    std::vector<int32_t> common;
    std::set_intersection(list.begin(), list.end(), guess.begin(), guess.end(),
                          std::back_inserter(common));
    listed += std::ssize(list);
    guessed += std::ssize(guess);
    right += std::ssize(common);
  }
  // The residual keeps a token's topic from layer to layer, but not all of it.
  EXPECT_GT(right, listed * 6 / 10);
  EXPECT_GT(right, guessed * 6 / 10);
  EXPECT_LT(right, listed);
}

TEST_F(PlannerTest, ARecordWithoutGuessesIsMadeAgain) {
  const std::string stem = folder_->Path("old");
  for (const char* end : {".trace", ".ahead.trace", ".json"}) {
    std::filesystem::copy_file(Stem(FfnMode::kPredicted) + end, stem + end);
  }
  std::ifstream file(stem + ".json");
  auto document = nlohmann::json::parse(file);
  document["guesses"] = "many";
  WriteFileAtomically(stem + ".json", document.dump());
  EXPECT_THROW(ReadAccessRecord(stem, Hash(), FfnMode::kPredicted), Error);
  document.erase("guesses");
  WriteFileAtomically(stem + ".json", document.dump());
  EXPECT_FALSE(ReadAccessRecord(stem, Hash(), FfnMode::kPredicted));
}

TEST_F(PlannerTest, LookingAheadHidesReads) {
  const FfnMode mode = FfnMode::kPredicted;
  auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  const PlanRequest request = Request(mode, Memory(mode, 40));
  // Storage that takes as long for what is missing as all else does, beside it too.
  HardwareProfile hardware = WithFlash(100);
  for (ThreadSpeed& speed : hardware.threads) speed.busy_neuron_bytes_per_s.median *= 100;
  const auto plan = [&] { return MakePlan(request, hardware, &*accesses).plan; };
  const ExecutionPlan with = plan();
  accesses->guesses = accesses->lists;
  const ExecutionPlan with_luck = plan();
  accesses->guesses.reset();
  const ExecutionPlan without = plan();
  EXPECT_GE(with.decode_tok_s, without.decode_tok_s) << "the faster way is planned with";
  EXPECT_GT(with_luck.decode_tok_s, without.decode_tok_s);
  EXPECT_GE(with_luck.decode_tok_s, with.decode_tok_s);
  EXPECT_DOUBLE_EQ(with_luck.time.predictor_ms, without.time.predictor_ms)
      << "guesses are made while threads wait";
}

// What is pinned may be another choice where reads are hidden; where it is the same, as much is
// read.
TEST_F(PlannerTest, RightGuessesReadNothingThatIsNotNeeded) {
  const FfnMode mode = FfnMode::kPredicted;
  auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  int compared = 0;
  for (const int percent : {15, 25, 35, 45, 55}) {
    PlanRequest request = Request(mode, Memory(mode, percent));
    request.engine.streaming.pipeline.merge_gap_bytes.reset();  // nor what lies between others
    const auto plan = [&] { return MakePlan(request, testing::SampleHardware(), &*accesses).plan; };
    accesses->guesses = accesses->lists;
    const ExecutionPlan with_luck = plan();
    accesses->guesses.reset();
    const ExecutionPlan without = plan();
    if (with_luck.stream->pinned_neurons != without.stream->pinned_neurons) continue;
    ++compared;
    EXPECT_EQ(with_luck.bytes_read_per_token, without.bytes_read_per_token) << percent;
    EXPECT_EQ(with_luck.miss_rate, without.miss_rate) << percent;
  }
  EXPECT_GT(compared, 0);
}

TEST_F(PlannerTest, MoreMemoryIsNeverSlowerAndIsKeptTo) {
  for (const FfnMode mode : {FfnMode::kPredicted, FfnMode::kGated}) {
    double last = 0;
    for (const uint64_t percent : {45, 30, 15, 0}) {
      const uint64_t memory = Memory(mode, percent);
      const ExecutionPlan plan = Plan(mode, memory).plan;
      EXPECT_LE(plan.ledger_bytes(), memory);
      EXPECT_GE(plan.decode_tok_s, last * 0.999) << percent;
      EXPECT_EQ(plan.stream.has_value(), percent > 0) << percent;
      EXPECT_EQ(plan.mode, FfnModeName(mode));
      last = plan.decode_tok_s;
    }
  }
}

TEST_F(PlannerTest, EnginesObeyAndTextsStayTheSame) {
  const FfnMode mode = FfnMode::kPredicted;
  const std::vector<TokenId> tokens = {1, 7, 300, 42, 599, 8, 9, 10, 11, 12};
  const auto logits = [&](Engine& engine) {
    KvSequence kv(engine.kv_pool());
    std::vector<float> last;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const BatchSequence one{&kv, std::span(tokens).subspan(i, 1)};
      engine.pass().Run({PassKind::kDecode, {&one, 1}}, engine.selector());
      const FloatView row = engine.pass().Logits(0, 1);
      last.assign(row.row(0), row.row(0) + row.cols);
    }
    return last;
  };
  const ExecutionPlan plan = Plan(mode, Memory(mode, 40)).plan;
  EngineOptions options = OptionsOfPlan(plan, Hash(), testing::SampleHardware().MachineHash());
  options.program_bytes = kProgram;
  const auto planned = Engine::Load(Model(), options);
  ASSERT_NE(planned->streamed(), nullptr);
  const StreamPlan& stream = planned->streamed()->store().plan();
  EXPECT_EQ(stream.pinned_neurons, plan.stream->pinned_neurons);
  EXPECT_EQ(stream.cache_slots, plan.stream->cache_slots);
  EXPECT_LE(planned->budget().used_bytes(), plan.budget_bytes);
  // What was planned to be in memory as a whole is never streamed instead.
  ExecutionPlan all = Plan(mode, Memory(mode, 0)).plan;
  all.budget_bytes = all.ledger_bytes() - 1000;
  all.ledger.clear();
  EngineOptions too_little = OptionsOfPlan(all, Hash(), testing::SampleHardware().MachineHash());
  too_little.program_bytes = kProgram;
  EXPECT_THROW(Engine::Load(Model(), too_little), Error);
  const auto whole = Engine::Load(Model(), Options(mode));
  EXPECT_EQ(logits(*planned), logits(*whole));
}

// The plan's file names them itself (plan/execution_plan.cc).
TEST_F(PlannerTest, EveryKvCodecSurvivesThePlansFile) {
  const FfnMode mode = FfnMode::kPredicted;
  const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  const HardwareProfile hardware = testing::SampleHardware();
  for (const KvCodecInfo& codec : kKvCodecs) {
    PlanRequest request = Request(mode, {});
    request.engine.kv_codec = KvCodecFromName(codec.name).value();
    const ExecutionPlan plan = MakePlan(request, hardware, &*accesses).plan;
    const ExecutionPlan read = PlanFromJson(PlanJson(plan), "plan");
    EXPECT_EQ(OptionsOfPlan(read, Hash(), hardware.MachineHash()).kv_codec, request.engine.kv_codec)
        << codec.name;
  }
}

TEST_F(PlannerTest, RequestsTogetherTakeFromTheCache) {
  const FfnMode mode = FfnMode::kPredicted;
  const ExecutionPlan plan = Plan(mode, Memory(mode, 40)).plan;
  EngineOptions options = OptionsOfPlan(plan, Hash(), testing::SampleHardware().MachineHash());
  options.program_bytes = kProgram;
  const GgufFile file = GgufFile::Open(Model());
  const EnginePlan alone = PlanEngine(file, options);
  MakeRoomForRequests(options, 1, 0);
  EXPECT_EQ(PlanEngine(file, options).ledger, alone.ledger) << "one asks for nothing";
  MakeRoomForRequests(options, 8, 0);
  // More than a plan leaves to the drift of the program.
  options.program_bytes = kProgram + (uint64_t{3} << 20);
  const EnginePlan together = PlanEngine(file, options);
  EXPECT_EQ(together.limits.tokens_together, 8);
  EXPECT_GT(together.kv.tokens, alone.kv.tokens);
  EXPECT_EQ(together.neurons.pinned_neurons, plan.stream->pinned_neurons);
  EXPECT_LT(together.neurons.cache_slots, plan.stream->cache_slots);
  EXPECT_GE(together.neurons.cache_slots, plan.stream->cache_slots / 2);
  EXPECT_LE(together.needed_bytes(), plan.budget_bytes);
  EXPECT_LE(Engine::Load(Model(), options)->budget().used_bytes(), plan.budget_bytes);
  options.program_bytes = kProgram + plan.ledger.at("neurons");
  EXPECT_THROW(Engine::Load(Model(), options), Error);
}

TEST_F(PlannerTest, TheLeastMemoryForASpeed) {
  const FfnMode mode = FfnMode::kPredicted;
  const uint64_t enough = Memory(mode, 20);
  const double wanted = Plan(mode, enough).plan.decode_tok_s;
  const ExecutionPlan plan = Plan(mode, 2 * enough, wanted).plan;
  EXPECT_GE(plan.decode_tok_s, wanted);
  EXPECT_LT(plan.budget_bytes, enough + enough / 20);
  ASSERT_TRUE(plan.stream);
  // A tenth of the memory for neurons less is too little.
  const uint64_t less = plan.budget_bytes - plan.ledger.at("neurons") / 10;
  EXPECT_LT(Plan(mode, less).plan.decode_tok_s, wanted);
}

TEST_F(PlannerTest, SaysWhichLimitCannotBeMet) {
  const auto refusal = [&](uint64_t memory, std::optional<double> speed) -> std::string {
    try {
      Plan(FfnMode::kPredicted, memory, speed);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
      return error.what();
    }
    return "taken";
  };
  const uint64_t resident = Resident(FfnMode::kPredicted);
  EXPECT_NE(refusal(1 << 20, {}).find("the smallest that can is"), std::string::npos);
  EXPECT_NE(refusal(resident * 2, 1e5).find("no memory would make it that fast"),
            std::string::npos);
  const double fast = Plan(FfnMode::kPredicted, resident + 100).plan.decode_tok_s;
  EXPECT_NE(refusal(Memory(FfnMode::kPredicted, 45), fast * 0.99).find("with all"),
            std::string::npos);
}

// Which of the wishes contradict each other, and what giving one of them up would bring.
TEST_F(PlannerTest, SaysWhichWishesContradictEachOther) {
  const FfnMode mode = FfnMode::kPredicted;
  const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  HardwareProfile hardware = testing::SampleHardware();
  hardware.cores[1] = hardware.cores[0];
  hardware.cores[1].cpu = 1;
  const auto speed = [&](uint64_t memory, const std::vector<int>& cores) {
    PlanRequest request = Request(mode, memory);
    request.cores = cores;
    return MakePlan(request, hardware, &*accesses).plan.decode_tok_s;
  };
  const auto refusal = [&](uint64_t memory, const std::vector<int>& cores, double tok_s) {
    PlanRequest request = Request(mode, memory);
    request.cores = cores;
    request.least_tok_s = tok_s;
    std::string said[2];
    for (const bool solves : {false, true}) {
      request.uses_solver = solves;
      try {
        MakePlan(request, hardware, &*accesses);
        said[solves] = "taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
        said[solves] = error.what();
      }
    }
    EXPECT_EQ(said[0], said[1]);
    return said[1];
  };
  const uint64_t all = Resident(mode) + (uint64_t{1} << 20), part = Memory(mode, 45);
  const double slow = speed(part, {0}), fast = speed(all, {0}), fastest = speed(all, {0, 1});
  ASSERT_LT(slow, 0.9 * fast);
  ASSERT_LT(fast, 0.9 * fastest);
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  using ::testing::Not;
  EXPECT_THAT(refusal(part, {0, 1}, 0.98 * fastest),
              AllOf(HasSubstr("the wishes for memory and speed contradict each other: with all "),
                    Not(HasSubstr("processors"))));
  EXPECT_THAT(refusal(all, {0}, 0.98 * fastest),
              HasSubstr("the wishes for processors and speed contradict each other: on 2 "
                        "processors it decodes at "));
  EXPECT_THAT(refusal(all, {0}, 2 * fastest),
              AllOf(HasSubstr("no memory would make it that fast here"), Not(HasSubstr("wishes"))));
}

TEST_F(PlannerTest, PlansOfOthersAreRefusedByName) {
  const ExecutionPlan good = Plan(FfnMode::kPredicted, Memory(FfnMode::kPredicted, 40)).plan;
  const auto refusal = [&](const ExecutionPlan& plan, uint64_t hash) -> std::string {
    try {
      EngineOptions options = OptionsOfPlan(plan, hash, testing::SampleHardware().MachineHash());
      options.program_bytes = kProgram;
      Engine::Load(Model(), options);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_EQ(refusal(good, Hash()), "taken");
  EXPECT_NE(refusal(good, Hash() + 1).find("another file"), std::string::npos);
  ExecutionPlan plan = good;
  plan.hardware_hash = "0000000000000000";
  EXPECT_NE(refusal(plan, Hash()).find("another machine"), std::string::npos);
  plan = good;
  plan.ledger["neurons"] += uint64_t{1} << 40;
  EXPECT_NE(refusal(plan, Hash()).find("ledger"), std::string::npos);
  plan = good;
  plan.stream->pinned_neurons += 1;
  EXPECT_NE(refusal(plan, Hash()).find("pinned neurons"), std::string::npos);
  plan = good;
  plan.stream->cache_slots += 6000;
  EXPECT_NE(refusal(plan, Hash()).find("memory for its neurons"), std::string::npos);
  plan = good;
  plan.cache_policy = "clairvoyant";
  EXPECT_NE(refusal(plan, Hash()).find("cache_policy"), std::string::npos);
  const auto refused = [&](const auto& edit, const char* name) {
    ExecutionPlan edited = good;
    edit(edited);
    EXPECT_NE(refusal(edited, Hash()).find(name), std::string::npos) << refusal(edited, Hash());
  };
  refused([](ExecutionPlan& p) { p.io_strategy = "sequential"; }, "io_strategy");
  refused([](ExecutionPlan& p) { p.io_strategy = "experts"; }, "io_strategy");
  refused([](ExecutionPlan& p) { p.io_strategy = "none"; }, "io_strategy");
  refused([](ExecutionPlan& p) { p.mode = "gated"; }, "io_strategy");
  refused([](ExecutionPlan& p) { p.stream->holds_gates = true; }, "gates_pinned");
  refused([](ExecutionPlan& p) { p.io_backend.clear(); }, "io_backend");
  refused(
      [](ExecutionPlan& p) {
        p.io_core = 2;
        p.stream.reset();
        p.io_strategy = "sequential";
      },
      "cores.io");
  refused([](ExecutionPlan& p) { p.cache_policy.clear(); }, "cache_policy");
}

// A disk that reports reads late reads nothing for as long as threads are busy between ranges.
TEST_F(PlannerTest, ATokenThatIsReadInOrderTakesLongerWhereLittleGoesOnBesideIt) {
  const auto timed = [&](double share) {
    HardwareProfile hardware = testing::SampleHardware();
    for (ThreadSpeed& speed : hardware.threads) speed.range_share.median = share;
    PlanRequest request = Request(FfnMode::kDense, Memory(FfnMode::kDense, 40));
    request.cores = {0, 1};
    const ExecutionPlan plan = MakePlan(request, hardware, nullptr).plan;
    EXPECT_EQ(plan.io_strategy, "sequential");
    return plan.time;
  };
  const PlannedTime beside = timed(1), between = timed(0);
  const double busy = beside.attention_ms + beside.predictor_ms + beside.ffn_ms;
  EXPECT_GT(beside.io_ms, busy) << "bound by reading";
  EXPECT_NEAR(between.token_ms, beside.io_ms + busy, 0.01 * between.token_ms);
}

// Where flash bounds decoding, threads still make prompts faster.
TEST_F(PlannerTest, SlowFlashStillLeavesAllThreadsToPrompts) {
  const FfnMode mode = FfnMode::kPredicted;
  const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  HardwareProfile hardware = testing::SampleHardware();
  for (IoSpeed& read : hardware.storage.reads) {
    read.bytes_per_s.median *= 1e5;  // in order, as prompts read
    read.batch_seconds.median *= 1e5;
  }
  PlanRequest request = Request(mode, Memory(mode, 45));
  EXPECT_EQ(MakePlan(request, hardware, &*accesses).plan.threads(), 2);
}

// What is told of a plan for a speed is that speed, also where many threads' activations leave
// less for neurons than one thread's.
TEST_F(PlannerTest, PlansForASpeedAreTold) {
  const FfnMode mode = FfnMode::kPredicted;
  const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  PlanRequest request = Request(mode, 2 * Resident(mode));
  for (int cpu = 2; cpu < 16; ++cpu) request.cores.push_back(cpu);
  const double most = MakePlan(request, testing::SampleHardware(), &*accesses).plan.decode_tok_s;
  for (const double share : {0.3, 0.5, 0.7, 0.9}) {
    request.least_tok_s = share * most;
    const ExecutionPlan plan = MakePlan(request, testing::SampleHardware(), &*accesses).plan;
    EXPECT_GE(plan.decode_tok_s, share * most);
    EXPECT_LE(plan.ledger_bytes(), plan.budget_bytes);
  }
}

// A processor more in the set is never worse than without it.
TEST_F(PlannerTest, MoreProcessorsAreNeverSlower) {
  const FfnMode mode = FfnMode::kPredicted;
  const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  for (const int percent : {5, 20, 60}) {
    PlanRequest request = Request(mode, Memory(mode, percent));
    double before = 0;
    for (int cpus = 1; cpus <= 8; cpus *= 2) {
      request.cores.clear();
      for (int cpu = 0; cpu < cpus; ++cpu) request.cores.push_back(cpu);
      const double speed =
          MakePlan(request, testing::SampleHardware(), &*accesses).plan.decode_tok_s;
      EXPECT_GE(speed, 0.97 * before) << percent << "% " << cpus;
      before = speed;
    }
  }
}

// Of unequal processors the fastest are taken, and a plan for slow ones is slower (P2 equation 9).
TEST_F(PlannerTest, UnequalProcessorsCountAsWhatTheyAre) {
  const FfnMode mode = FfnMode::kPredicted;
  const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  PlanRequest request = Request(mode, Resident(mode) + (uint64_t{1} << 20));
  HardwareProfile hardware = testing::SampleHardware();  // processor 1 has a quarter of 0's speed
  for (ThreadSpeed& speed : hardware.threads) speed.section_seconds.median = 0;
  const auto plan_on = [&](const std::vector<int>& cores) {
    request.cores = cores;
    return MakePlan(request, hardware, &*accesses).plan;
  };
  const ExecutionPlan big = plan_on({0}), little = plan_on({1});
  EXPECT_NEAR(little.decode_tok_s / big.decode_tok_s, 0.25, 0.01);
  EXPECT_EQ(little.compute_cores, std::vector<int>{1});
  // Two threads were measured on one of each.
  const ExecutionPlan both = plan_on({0, 1});
  hardware.cores[1].is_big = true;
  EXPECT_DOUBLE_EQ(plan_on({0, 1}).decode_tok_s, both.decode_tok_s);
  EXPECT_DOUBLE_EQ(plan_on({1}).decode_tok_s, big.decode_tok_s) << "rounds differ by chance";
  // One thread runs on the faster one, whichever it is, and never faster than memory delivers.
  std::swap(hardware.cores[0].cpu, hardware.cores[1].cpu);
  std::swap(hardware.cores[0], hardware.cores[1]);
  hardware.cores[0].is_big = false;
  hardware.threads.pop_back();
  const ExecutionPlan first = plan_on({0}), second = plan_on({1});
  EXPECT_GT(second.decode_tok_s, first.decode_tok_s);
  EXPECT_LT(second.decode_tok_s, 1.5 * first.decode_tok_s);
}

// Two flashes: a slow one bounds the token by its reads alone.
TEST_F(PlannerTest, TheSlowerOfComputingAndReadingIsWhatATokenTakes) {
  const FfnMode mode = FfnMode::kPredicted;
  const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  const PlanRequest request = Request(mode, Memory(mode, 45));
  const auto scaled = [&](double factor) {
    return MakePlan(request, WithFlash(factor), &*accesses).plan;
  };
  const ExecutionPlan slow = scaled(1e-3), slower = scaled(5e-4), fast = scaled(1e6);
  EXPECT_EQ(slow.bound, "flash");
  EXPECT_EQ(fast.bound, "memory");
  EXPECT_NEAR(slower.decode_tok_s / slow.decode_tok_s, 0.5, 0.02);
  const PlannedTime& time = fast.time;
  EXPECT_NEAR(time.token_ms, time.attention_ms + time.predictor_ms + time.ffn_ms,
              1e-6 * time.token_ms);
}

// What waits for its turn to be read comes together with the neuron before it.
TEST_F(PlannerTest, NeighborsThatWaitAreReadTogether) {
  const FfnMode mode = FfnMode::kPredicted;
  const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  const auto plan_with = [&](std::optional<uint32_t> gap) {
    PlanRequest request = Request(mode, Memory(mode, 60));
    request.engine.streaming.pipeline.merge_gap_bytes = gap;
    return MakePlan(request, testing::SampleHardware(), &*accesses).plan;
  };
  const ExecutionPlan alone = plan_with({}), near = plan_with(0), gaps = plan_with(1 << 20);
  EXPECT_LT(near.time.io_ms, alone.time.io_ms);
  EXPECT_EQ(near.bytes_read_per_token, alone.bytes_read_per_token);
  EXPECT_LT(gaps.time.io_ms, alone.time.io_ms);
  EXPECT_GT(gaps.bytes_read_per_token, alone.bytes_read_per_token) << "what lies between, too";
}

TEST_F(PlannerTest, NeuronsAreReadMoreSlowlyBesideThreadsThatCompute) {
  const FfnMode mode = FfnMode::kPredicted;
  const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
  const PlanRequest request = Request(mode, Memory(mode, 45));
  HardwareProfile hardware = testing::SampleHardware();
  const auto io_ms = [&](double share) {
    for (ThreadSpeed& speed : hardware.threads) {
      speed.busy_neuron_bytes_per_s.median =
          share * hardware.IoBytesPerSecond(kBusyNeuronBytes, kBusyNeuronDepth);
    }
    return MakePlan(request, hardware, &*accesses).plan.time.io_ms;
  };
  const double free = io_ms(1), half = io_ms(0.5), none = io_ms(1e-6);
  EXPECT_GT(free, 0);
  EXPECT_GT(half, free);
  EXPECT_GT(none, half);
  EXPECT_EQ(io_ms(2), free);
}

}  // namespace
}  // namespace hearth
