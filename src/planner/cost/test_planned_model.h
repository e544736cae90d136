// A small packed model, what its tokens asked for, and plans for it. For tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "format/packed_file.h"
#include "measure/topic_walk.h"
#include "planner/cost/access_record.h"
#include "planner/cost/planner.h"
#include "planner/doctor/test_hardware.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {

inline constexpr uint64_t kProgram = uint64_t{8} << 20;

class PlannedModelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder("planner_test");
    SynthesizeSparseModel(folder_->Path("model.gguf"));
    for (const FfnMode mode : {FfnMode::kPredicted, FfnMode::kGated}) {
      const auto engine = Engine::Load(Model(), Options(mode));
      const auto topics = TopicMap::FromMetadata(engine->model().metadata(), 2000);
      RecordAccesses(*engine, Hash(), TopicWalk(*topics).Take(96), Stem(mode), {});
    }
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string Model() { return folder_->Path("model.gguf"); }
  static std::string Stem(FfnMode mode) { return folder_->Path(FfnModeName(mode)); }
  static uint64_t Hash() { return ModelHash(GgufFile::Open(Model())); }
  static EngineOptions Options(FfnMode mode) {
    return {.program_bytes = kProgram, .threads = 2, .context = 96, .mode = mode};
  }

  static PlanRequest Request(FfnMode mode, std::optional<uint64_t> memory_bytes) {
    PlanRequest request{.model = Model(), .engine = Options(mode), .cores = {0, 1}};
    request.engine.memory_bytes = memory_bytes;
    return request;
  }
  static PlannedRun Plan(FfnMode mode, uint64_t memory_bytes,
                         std::optional<double> least_tok_s = {}) {
    PlanRequest request = Request(mode, memory_bytes);
    request.least_tok_s = least_tok_s;
    const auto accesses = ReadAccessRecord(Stem(mode), Hash(), mode);
    return MakePlan(request, testing::SampleHardware(), &*accesses);
  }
  // The sample's storage, so many times as fast.
  static HardwareProfile WithFlash(double factor) {
    HardwareProfile hardware = testing::SampleHardware();
    for (IoSpeed& read : hardware.storage.reads) {
      read.bytes_per_s.median *= factor;
      read.batch_seconds.median /= factor;
    }
    for (ThreadSpeed& speed : hardware.threads) speed.busy_neuron_bytes_per_s.median *= factor;
    return hardware;
  }
  // Of the model in memory as a whole.
  static uint64_t Resident(FfnMode mode) {
    return PlanEngine(GgufFile::Open(Model()), Options(mode)).needed_bytes();
  }

  // With a share of the neurons outside.
  static uint64_t Memory(FfnMode mode, uint64_t percent_outside) {
    constexpr uint64_t kNeuronBytes = uint64_t{4} * 6144 * 1536;
    return Resident(mode) + 100 - kNeuronBytes * percent_outside / 100;
  }

  inline static TestFolder* folder_ = nullptr;
};

}  // namespace hearth
