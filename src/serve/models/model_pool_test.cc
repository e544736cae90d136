// Who is loaded, who leaves and who waits: with models of air, and a loading thread that does what
// it is told when the test says so.
#include "serve/models/model_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace hearth::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kBudget = 100;

struct FakeModel : public Resident {
  FakeModel(std::string the_name, std::vector<std::string>& the_log)
      : name(std::move(the_name)), log(the_log) {}
  ~FakeModel() override { log.push_back("unload " + name); }
  bool is_at_rest() const override { return users == 0; }

  const std::string name;
  std::vector<std::string>& log;
  int users = 0;
};

class ModelPoolTest : public ::testing::Test, public ModelLoader {
 protected:
  ModelPoolTest() { MakePool({}); }

  void MakePool(std::optional<std::chrono::seconds> unload_after, size_t most_waiting = 8) {
    pool_ = std::make_unique<ModelPool>(
        *this,
        ModelPool::Options{.budget_bytes = kBudget,
                           .most_waiting = most_waiting,
                           .unload_after = unload_after,
                           .now = [this] { return now_; }},
        [this](std::function<void()> run) { posted_.push_back(std::move(run)); },
        [this](std::function<void()> run) { jobs_.push_back(std::move(run)); });
  }

  uint64_t Measure(const ModelKey& key) override {
    log_.push_back("measure " + key.name);
    if (!broken_.empty() && broken_ == key.name) {
      throw api::Error(api::ErrorCode::kCorrupt, "it is damaged");
    }
    return bytes_.at(key.name);
  }
  std::shared_ptr<Resident> Load(const ModelKey& key, uint64_t bytes,
                                 const std::atomic<bool>& cancel) override {
    EXPECT_EQ(bytes, bytes_.at(key.name));
    EXPECT_LE(pool_->shelf().used_bytes(), kBudget);
    log_.push_back("load " + key.name);
    if (cancel) throw api::Error(api::ErrorCode::kCancelled, "nobody waits for it");
    if (fails_to_load_ == key.name) throw api::Error(api::ErrorCode::kIo, "the disk is gone");
    return std::make_shared<FakeModel>(key.name, log_);
  }

  // Asks for a model, and uses it from when it is there until Release.
  ModelPool::Ticket Ask(const std::string& name, const std::string& version = "1") {
    const int number = ++asked_;
    const std::string id = name + std::to_string(number);
    return pool_->Ask({name, version}, {.on_ready =
                                            [this, id](Resident& model) {
                                              ++static_cast<FakeModel&>(model).users;
                                              events_.push_back(id);
                                            },
                                        .on_failed =
                                            [this, id](const RequestError& error) {
                                              events_.push_back(id + " failed");
                                              last_error_ = error.what();
                                              last_status_ = error.status();
                                            }});
  }
  void Release(const std::string& name) {
    --static_cast<FakeModel&>(*pool_->shelf().FindLoaded(name)).users;
    pool_->OnRest(name);
  }
  // Loads it, and lets it rest.
  void Load(const std::string& name) {
    Ask(name);
    RunAll();
    Release(name);
    events_.clear();
  }
  static void RunFirst(std::deque<std::function<void()>>& queue) {
    const auto run = std::move(queue.front());
    queue.pop_front();
    run();
  }
  // One job of the loading thread, and what it posts.
  bool RunJob() {
    if (jobs_.empty()) return false;
    RunFirst(jobs_);
    while (!posted_.empty()) RunFirst(posted_);
    EXPECT_LE(pool_->shelf().used_bytes(), kBudget);
    return true;
  }
  void RunAll() {
    while (RunJob()) {
    }
  }
  std::vector<std::string> TakeLog() { return std::exchange(log_, {}); }
  std::vector<std::string> TakeEvents() { return std::exchange(events_, {}); }

  std::map<std::string, uint64_t> bytes_ = {{"a", 40}, {"b", 40}, {"c", 40}, {"d", 20}, {"e", 90}};
  std::string broken_, fails_to_load_;
  std::deque<std::function<void()>> posted_, jobs_;
  std::vector<std::string> log_;     // of the loading thread
  std::vector<std::string> events_;  // of requests
  std::string last_error_;
  Status last_status_ = Status::kOk;
  int asked_ = 0;
  ModelPool::Clock::time_point now_;
  std::unique_ptr<ModelPool> pool_;
};

TEST_F(ModelPoolTest, LoadsOnceForAllWhoWait) {
  Ask("a");
  Ask("a");
  EXPECT_THAT(events_, IsEmpty());
  RunJob();  // measured
  Ask("a");
  RunAll();
  EXPECT_THAT(TakeLog(), ElementsAre("measure a", "load a"));
  EXPECT_THAT(TakeEvents(), ElementsAre("a1", "a2", "a3"));
  Ask("a");
  EXPECT_THAT(TakeEvents(), ElementsAre("a4")) << "at once";
  EXPECT_TRUE(jobs_.empty());
  EXPECT_EQ(pool_->counts().loads, 1);
}

TEST_F(ModelPoolTest, WhatHasRestedForLongestLeavesFirst) {
  Load("a");
  Load("b");
  Ask("a");
  Release("a");  // so that b has been at rest for longer
  TakeLog();
  TakeEvents();
  Ask("c");
  RunAll();
  EXPECT_THAT(TakeLog(), ElementsAre("measure c", "unload b", "load c"));
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("a", "c"));
  Release("c");
  Ask("e");
  RunAll();
  EXPECT_THAT(TakeLog(), ElementsAre("measure e", "unload a", "unload c", "load e"))
      << "as many as must";
  Ask("b");
  EXPECT_EQ(pool_->counts().unloads, 3);
}

TEST_F(ModelPoolTest, WhatFitsStays) {
  Load("a");
  Load("b");
  Load("d");
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("a", "b", "d"));
  EXPECT_EQ(pool_->shelf().used_bytes(), kBudget);
  EXPECT_EQ(pool_->counts().unloads, 0);
}

TEST_F(ModelPoolTest, NobodyLosesAModelThatIsUsed) {
  Ask("a");
  RunAll();
  Ask("b");
  RunAll();
  Ask("c");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("a1", "b2"));
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("a", "b"));
  EXPECT_EQ(pool_->waiting(), 1u);
  Release("b");  // a is to leave, which was used before b; but b is free now
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("c3"));
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("a", "c"));
}

TEST_F(ModelPoolTest, AModelThatIsToLeaveTakesNoNewRequests) {
  Ask("e");
  RunAll();
  Ask("a");
  RunAll();
  Ask("e");  // would keep a from ever having its turn
  EXPECT_THAT(TakeEvents(), ElementsAre("e1"));
  Release("e");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("a2"));
  Ask("a");  // after the third, which waits for this memory
  EXPECT_THAT(TakeEvents(), IsEmpty());
  Release("a");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("e3"));
  Release("e");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("a4"));
}

TEST_F(ModelPoolTest, OthersGoOnWhileOneIsLoaded) {
  Load("a");
  Ask("b");
  RunJob();  // measured; it is being loaded
  Ask("a");
  EXPECT_THAT(TakeEvents(), ElementsAre("a3"));
  Release("a");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("b2"));
}

TEST_F(ModelPoolTest, RequestsAreServedInTheOrderOfTheirArrival) {
  Ask("e");
  RunAll();
  Ask("a");
  RunJob();  // measured: it needs the room of e
  Ask("c");
  Ask("e");
  Ask("a");
  Release("e");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("e1", "a2", "a5", "c3")) << "a5 comes with a2";
  Release("c");
  RunAll();
  EXPECT_THAT(TakeEvents(), IsEmpty()) << "a is used";
  Release("a");
  Release("a");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("e4"));
}

TEST_F(ModelPoolTest, WhoLeavesWaitsNoLonger) {
  Ask("e");
  RunAll();
  const ModelPool::Ticket waits = Ask("a");
  RunAll();
  Ask("e");
  TakeEvents();
  pool_->Cancel(waits);
  EXPECT_THAT(TakeEvents(), ElementsAre("e3")) << "nothing needs its room any more";
  Release("e");
  Release("e");
  RunAll();
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("e"));
  EXPECT_THAT(TakeEvents(), IsEmpty());
}

TEST_F(ModelPoolTest, ALoadThatNobodyWaitsForEndsWhereOthersWait) {
  const ModelPool::Ticket alone = Ask("a");
  RunJob();
  pool_->Cancel(alone);
  RunAll();
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("a")) << "its client may come back";
  const ModelPool::Ticket gone = Ask("e");
  RunJob();
  RunJob();
  Ask("b");
  pool_->Cancel(gone);
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("b3"));
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("b"));
  EXPECT_EQ(pool_->counts().failed_loads, 0);
}

TEST_F(ModelPoolTest, WhoComesWhileALoadIsCancelledGetsAnother) {
  const ModelPool::Ticket gone = Ask("a");
  RunJob();
  Ask("b");
  pool_->Cancel(gone);
  Ask("a");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("b2", "a3"));
}

TEST_F(ModelPoolTest, NoMoreWaitThanMay) {
  MakePool({}, 2);
  Ask("a");
  Ask("b");
  try {
    Ask("a");
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status(), Status::kTooManyRequests);
    EXPECT_EQ(error.code(), "queue_full");
  }
  RunAll();
  Ask("a");
  EXPECT_THAT(TakeEvents(), ElementsAre("a1", "b2", "a4"));
}

TEST_F(ModelPoolTest, WhatFitsNowhereIsRefusedAndDisturbsNobody) {
  bytes_["huge"] = kBudget + 1;
  Load("a");
  TakeLog();
  Ask("huge");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("huge2 failed"));
  EXPECT_EQ(last_status_, Status::kBadRequest);
  EXPECT_THAT(last_error_, HasSubstr("'huge' cannot be loaded: it takes 101 B, and all models "
                                     "together may have 100 B"));
  EXPECT_THAT(TakeLog(), ElementsAre("measure huge")) << "a stays";
  Ask("huge");
  EXPECT_THAT(TakeEvents(), ElementsAre("huge3 failed")) << "at once";
  bytes_["huge"] = 50;
  Ask("huge", "2");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("huge4")) << "another file";
}

TEST_F(ModelPoolTest, AFileThatFailsEndsItsRequestsAlone) {
  broken_ = "b";
  Ask("b");
  Ask("a");
  Ask("b");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("b1 failed", "b3 failed", "a2"));
  EXPECT_THAT(last_error_, HasSubstr("the model 'b' cannot be loaded: it is damaged"));
  fails_to_load_ = "c";
  Ask("c");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("c4 failed"));
  EXPECT_EQ(last_status_, Status::kUnavailable);
  EXPECT_EQ(pool_->shelf().used_bytes(), 40u);
  fails_to_load_.clear();
  Ask("c");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("c5")) << "a disk that is back is tried again";
  EXPECT_EQ(pool_->counts().failed_loads, 2);
}

TEST_F(ModelPoolTest, AFileThatChangedIsLoadedAgainOnceItsModelRests) {
  Ask("a");
  RunAll();
  bytes_["a"] = 60;
  Ask("a", "2");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("a1"));
  TakeLog();
  Release("a");
  RunAll();
  EXPECT_THAT(TakeLog(), ElementsAre("unload a", "measure a", "load a"));
  EXPECT_THAT(TakeEvents(), ElementsAre("a2"));
  EXPECT_EQ(pool_->shelf().used_bytes(), 60u);
}

TEST_F(ModelPoolTest, AFileThatIsGoneLeavesOnceItsModelRests) {
  Ask("a");
  RunAll();
  pool_->Forget("a");
  RunAll();
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("a"));
  Release("a");
  RunAll();
  EXPECT_THAT(pool_->shelf().Loaded(), IsEmpty());
  EXPECT_EQ(pool_->shelf().used_bytes(), 0u);
}

TEST_F(ModelPoolTest, WhatRestsForLongEnoughIsUnloadedWhereThatIsAskedFor) {
  MakePool(std::chrono::seconds(60));
  Load("a");
  now_ += std::chrono::seconds(30);
  Ask("b");
  RunAll();
  now_ += std::chrono::seconds(31);
  pool_->UnloadRested();
  RunAll();
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("b"));
  now_ += std::chrono::seconds(1000);
  pool_->UnloadRested();
  RunAll();
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("b")) << "it works";
  Release("b");
  pool_->UnloadRested();
  RunAll();
  EXPECT_THAT(pool_->shelf().Loaded(), ElementsAre("b"));
  now_ += std::chrono::seconds(60);
  pool_->UnloadRested();
  RunAll();
  EXPECT_THAT(pool_->shelf().Loaded(), IsEmpty());
}

TEST_F(ModelPoolTest, AStopEndsLoadsThatNobodyWaitsFor) {
  const ModelPool::Ticket gone = Ask("a");
  RunJob();
  pool_->Stop();
  EXPECT_FALSE(pool_->is_idle());
  pool_->Cancel(gone);
  RunAll();
  EXPECT_TRUE(pool_->is_idle());
  EXPECT_THAT(pool_->shelf().Loaded(), IsEmpty());
  Ask("b");
  RunAll();
  EXPECT_THAT(TakeEvents(), ElementsAre("b2")) << "who waits still gets an answer";
}

// Whatever comes in whatever order: the budget holds (RunJob), and everybody has an answer in the
// end.
TEST_F(ModelPoolTest, RandomRequestsAllEndWithinTheBudget) {
  std::mt19937 random(7);
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  MakePool({}, 1000);
  std::map<std::string, int> users;
  std::vector<ModelPool::Ticket> tickets;
  int cancelled = 0;
  const auto count_users = [&] {
    for (const std::string& event : TakeEvents()) ++users[event.substr(0, 1)];
  };
  int answered = 0;
  const auto release_one = [&] {
    for (auto& [name, count] : users) {
      if (count == 0) continue;
      --count;
      ++answered;
      Release(name);
      return true;
    }
    return false;
  };
  for (int step = 0; step < 10'000; ++step) {
    const unsigned what = random() % 8;
    if (what < 2) {
      tickets.push_back(Ask(names[random() % names.size()], random() % 50 == 0 ? "2" : "1"));
    } else if (what < 4) {
      RunJob();
    } else if (what < 7) {
      release_one();
    } else if (!tickets.empty()) {
      const size_t before = pool_->waiting();
      pool_->Cancel(tickets[random() % tickets.size()]);
      cancelled += pool_->waiting() < before ? 1 : 0;
    }
    count_users();
  }
  for (bool goes_on = true; goes_on;) {
    goes_on = RunJob();
    count_users();
    goes_on = release_one() || goes_on;
    count_users();
  }
  EXPECT_EQ(pool_->waiting(), 0u);
  EXPECT_EQ(answered + cancelled, asked_);
  EXPECT_GT(cancelled, 10);
  EXPECT_GT(pool_->counts().unloads, 50);
}

}  // namespace
}  // namespace hearth::serve
