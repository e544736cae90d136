// Fetching models from a hub, and what its server may do meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/test_data.h"
#include "hub/fetch.h"
#include "hub/remote_header.h"
#include "hub_server.h"

namespace hearth::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = StoreFault::Kind;

constexpr char kRepository[] = "some/model-GGUF";
constexpr char kPath[] = "model-Q4_0.gguf";

std::string Noise(size_t bytes, unsigned seed = 1) {
  std::string text(bytes, 0);
  for (char& c : text) {
    seed = seed * 1664525u + 1013904223u;
    c = static_cast<char>(seed >> 24);
  }
  return text;
}

class FetchTest : public ::testing::Test {
 protected:
  FetchTest()
      : folder_(::testing::TempDir() + "hub_fetch." + std::to_string(getpid())),
        content_(Noise(300'000)) {
    setenv("no_proxy", "*", 1);
    fs::remove_all(folder_);
    server_.Add(kRepository, kPath, content_);
    options_.folder = folder_;
    options_.progress = [this](uint64_t done, uint64_t total, const std::string& note) {
      EXPECT_LE(done, total) << note;
    };
    options_.notice = [this](const std::string& sentence) { notices_.push_back(sentence); };
    options_.waits.assign(3, std::chrono::milliseconds(1));
  }
  ~FetchTest() override { fs::remove_all(folder_); }

  HubSettings Settings() const {
    HubSettings settings;
    settings.endpoint = server_.endpoint();
    settings.http.token = token_;
    settings.http.cancel = options_.cancel;
    return settings;
  }
  FetchedModel Fetch(const std::string& choice = "") {
    Hub hub(Settings());
    const Repository repository = hub.List(kRepository);
    return FetchModel(hub, repository, ChooseModel(repository.Models(), {kRepository, choice}),
                      options_);
  }
  // Fails with this code and words.
  void ExpectFailure(ErrorCode code, const std::string& words) {
    try {
      Fetch();
      ADD_FAILURE() << "it was fetched";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
  std::string Path() const { return folder_ + "/" + kRepository + "/" + kPath; }
  void ExpectFetched(const std::string& content) const {
    EXPECT_TRUE(ReadWholeFile(Path()) == content);
    EXPECT_THAT(Files(), ElementsAre(kPath, std::string(kPath) + ".sha256"));
  }
  // Names in the repository's folder.
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(folder_ + "/" + kRepository, missing)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  HubServer server_;
  const std::string folder_;
  const std::string content_;
  std::string token_;
  FetchOptions options_;
  std::vector<std::string> notices_;
};

TEST_F(FetchTest, FollowsTheHubToItsStore) {
  token_ = "hf_secret";
  const FetchedModel fetched = Fetch();
  EXPECT_THAT(fetched.paths, ElementsAre(Path()));
  EXPECT_EQ(fetched.fetched_bytes, content_.size());
  ExpectFetched(content_);
  // The token goes to the hub and to nobody else.
  for (const HubServer::Request& request : server_.requests()) {
    EXPECT_EQ(request.authorization, request.is_to_store ? "" : "Bearer hf_secret") << request.path;
  }
  EXPECT_THAT(server_.TakeRanges(), SizeIs(1));
  EXPECT_EQ(Fetch().fetched_bytes, 0u);
  EXPECT_THAT(server_.TakeRanges(), IsEmpty());
}

TEST_F(FetchTest, TheHashBesideAFileIsWhatSha256sumReads) {
  Fetch();
  const std::string check =
      "cd '" + folder_ + "/" + kRepository + "' && sha256sum --status -c '" + kPath + ".sha256'";
  EXPECT_EQ(std::system(check.c_str()), 0);
}

TEST_F(FetchTest, GoesOnAfterThreeInterruptions) {
  server_.Fail({{Kind::kCut, 1000}, {Kind::kCut, 70'000}, {Kind::kCut, 1}});
  Fetch();
  ExpectFetched(content_);
  EXPECT_THAT(server_.TakeRanges(),
              ElementsAre("bytes=0-", "bytes=1000-", "bytes=71000-", "bytes=71001-"));
}

TEST_F(FetchTest, GoesOnWithWhatAnEarlierCallLeft) {
  options_.waits.clear();
  server_.Fail({{Kind::kCut, 200'000}});
  ExpectFailure(ErrorCode::kIo, "cannot be read");
  EXPECT_THAT(Files(), ElementsAre(HasSubstr(".part")));
  EXPECT_EQ(Fetch().fetched_bytes, content_.size() - 200'000);
  ExpectFetched(content_);
  EXPECT_THAT(server_.TakeRanges(), ElementsAre("bytes=0-", "bytes=200000-"));
}

TEST_F(FetchTest, GivesUpWhereNothingMoreComes) {
  server_.Fail({{Kind::kCut, 5}, {Kind::kCut, 0}, {Kind::kStatus, 503}, {Kind::kCut, 0}});
  ExpectFailure(ErrorCode::kIo, "cannot be read");
}

TEST_F(FetchTest, OneWrongByteIsFound) {
  server_.Fail({{Kind::kFlip, 123'456}});
  ExpectFailure(ErrorCode::kCorrupt, "what came is not what the hub has");
  EXPECT_THAT(Files(), IsEmpty());
  Fetch();
  ExpectFetched(content_);
}

TEST_F(FetchTest, AWrongByteOfAnEarlierCallIsFound) {
  options_.waits.clear();
  server_.Fail({{Kind::kCut, 1000}});
  ExpectFailure(ErrorCode::kIo, "cannot be read");
  const std::string partial = folder_ + "/" + kRepository + "/" + Files().front();
  std::fstream(partial, std::ios::in | std::ios::out | std::ios::binary).seekp(500).put('?');
  ExpectFailure(ErrorCode::kCorrupt, "what came is not what the hub has");
  Fetch();
  ExpectFetched(content_);
}

TEST_F(FetchTest, AServerWithoutRangesBeginsAnew) {
  server_.Fail({{Kind::kCut, 100'000}, {Kind::kNoRange}});
  Fetch();
  ExpectFetched(content_);
}

TEST_F(FetchTest, WhatMayPassIsTriedAgain) {
  // The address of the store has expired; it is busy; it wants a pause.
  server_.Fail({{Kind::kStatus, 403}, {Kind::kStatus, 503}, {Kind::kStatus, 429}});
  Fetch();
  ExpectFetched(content_);
}

TEST_F(FetchTest, AFileThatChangedOnTheHubBeginsAnew) {
  options_.waits.clear();
  server_.Fail({{Kind::kCut, 1000}});
  ExpectFailure(ErrorCode::kIo, "cannot be read");
  const std::string changed = Noise(250'000, 2);
  server_.Add(kRepository, kPath, changed);
  server_.TakeRanges();
  Fetch();
  ExpectFetched(changed);
  EXPECT_THAT(server_.TakeRanges(), ElementsAre("bytes=0-"));
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("has changed on the hub")));
  // And one that was whole.
  server_.Add(kRepository, kPath, content_);
  EXPECT_EQ(Fetch().fetched_bytes, content_.size());
  ExpectFetched(content_);
}

TEST_F(FetchTest, WhatIsHereIsCheckedByItsHash) {
  Fetch();
  fs::remove(Path() + ".sha256");
  EXPECT_EQ(Fetch().fetched_bytes, 0u);
  ExpectFetched(content_);
  // A file that somebody wrote to after it came.
  std::fstream(Path(), std::ios::in | std::ios::out | std::ios::binary).seekp(9).put('?');
  fs::last_write_time(Path(), fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(Fetch().fetched_bytes, content_.size());
  ExpectFetched(content_);
}

TEST_F(FetchTest, SmallFilesHaveTheHashOfGit) {
  server_.Add(kRepository, kPath, content_, false);
  Fetch();
  EXPECT_TRUE(ReadWholeFile(Path()) == content_);
  EXPECT_EQ(Fetch().fetched_bytes, 0u);
}

TEST_F(FetchTest, AllPartsOfASplitModelCome) {
  const std::string stem = "Q8_0/model with blank-Q8_0-0000";
  std::vector<std::string> parts;
  for (const unsigned i : {1u, 2u, 3u}) {
    parts.push_back(Noise(10'000 * i, i));
    server_.Add(kRepository, stem + std::to_string(i) + "-of-00003.gguf", parts.back());
  }
  server_.Fail({{}, {Kind::kCut, 77}});
  const FetchedModel fetched = Fetch("q8_0");
  ASSERT_THAT(fetched.paths, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(ReadWholeFile(fetched.paths[i]) == parts[i]) << i;
  EXPECT_EQ(fetched.bytes, 60'000u);
}

TEST_F(FetchTest, TwoAtOnceFetchOnce) {
  server_.Fail({{Kind::kHold, 1000}});
  std::thread first([&] { Fetch(); });
  server_.AwaitHeld(1);
  std::atomic<bool> waits = false;
  FetchOptions other = options_;
  other.notice = [&](const std::string& sentence) {
    EXPECT_THAT(sentence, HasSubstr("another process fetches it"));
    waits = true;
    server_.Release();
  };
  Hub hub(Settings());
  const Repository repository = hub.List(kRepository);
  const FetchedModel fetched = FetchModel(hub, repository, repository.Models().front(), other);
  first.join();
  EXPECT_TRUE(waits);
  EXPECT_EQ(fetched.fetched_bytes, 0u);
  ExpectFetched(content_);
  EXPECT_THAT(server_.TakeRanges(), ElementsAre("bytes=0-", "bytes=1000-"));
}

TEST_F(FetchTest, AnInterruptStopsItAndLeavesWhatCame) {
  std::atomic<bool> cancel = false;
  options_.cancel = &cancel;
  server_.Fail({{Kind::kHold, 1000}});
  std::thread interrupter([&] {
    server_.AwaitHeld(1);
    cancel = true;
  });
  ExpectFailure(ErrorCode::kCancelled, "interrupted");
  interrupter.join();
  options_.cancel = nullptr;
  Fetch();
  ExpectFetched(content_);
}

TEST_F(FetchTest, ServersThatLieAreRefused) {
  server_.Fail({{Kind::kMore, 10}});
  ExpectFailure(ErrorCode::kCorrupt, "sends more than the 300000 bytes");
  fs::remove_all(folder_);
  options_.waits.clear();
  server_.Fail({{Kind::kCut, 1000}});
  ExpectFailure(ErrorCode::kIo, "cannot be read");
  server_.Fail({{Kind::kWrongRange, 10}});
  ExpectFailure(ErrorCode::kCorrupt, "asked for the bytes from 1000 of 300000");
  server_.Fail({{Kind::kStatus, 404}});
  ExpectFailure(ErrorCode::kIo, "answers with status 404");
  server_.RedirectForever();
  ExpectFailure(ErrorCode::kIo, "redirects");
}

TEST_F(FetchTest, AnswersOfTheApiAreNotTrusted) {
  const std::string api = std::string("/api/models/") + kRepository;
  const std::string head = R"({"sha": ")" + std::string(40, 'a') + R"(", "siblings": [)";
  const std::string lfs = R"("lfs": {"sha256": ")" + std::string(64, 'b') + R"(", "size": 1}})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"<html>", "is not JSON"},
      {"[]", "expected an object"},
      {"{}", "sha is missing"},
      {head + R"({"rfilename": "../../x.gguf", )" + lfs + "]}", "a path inside the repository"},
      {head + R"({"rfilename": "/etc/x.gguf", )" + lfs + "]}", "a path inside the repository"},
      {head + R"({"rfilename": "a\u001b[31m.gguf", )" + lfs + "]}", "a path inside"},
      {head + R"({"rfilename": "x.gguf", "lfs": {"sha256": "../..", "size": 1}}]})", "64 hex"},
      {head + R"({"rfilename": "x.gguf", "lfs": {"sha256": ")" + std::string(64, 'b') +
           R"(", "size": -1}}]})",
       "size"},
      {head + R"({"rfilename": "x.gguf"}]})", "blobId is missing"},
      {std::string(17 << 20, ' '), "too long"},
      {std::string(100'000, '['), "nested too deeply"},
      {head + "]}", "holds no GGUF file"},
  };
  for (const auto& [answer, words] : cases) {
    SCOPED_TRACE(answer.substr(0, 200));
    server_.Answer(api, 200, answer);
    try {
      Fetch();
      ADD_FAILURE() << "it was fetched";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
}

TEST_F(FetchTest, AHeaderIsReadWithoutTheModel) {
  std::string model = ReadWholeFile(SourcePath("models/hearth-stories-5m.gguf"));
  server_.Add("our/stories", "stories.gguf", model);
  Hub hub(Settings());
  const Repository repository = hub.List("our/stories");
  const ModelFiles files = repository.Models().front();
  server_.Fail({{Kind::kCut, 1000}});
  const GgufFile remote = OpenRemoteHeader(hub, repository, files);
  const GgufFile local = GgufFile::Open(SourcePath("models/hearth-stories-5m.gguf"));
  EXPECT_EQ(remote.tensors().size(), local.tensors().size());
  EXPECT_EQ(remote.metadata().values().size(), local.metadata().values().size());
  EXPECT_THAT(server_.TakeRanges(), ElementsAre("bytes=0-1048575", "bytes=1000-1048575"));
  fs::create_directories(folder_);
  const std::string saved = SaveHeaders(remote, repository, files, folder_);
  EXPECT_EQ(fs::file_size(saved), model.size());
  EXPECT_EQ(GgufFile::Open(saved).tensors().back().name, local.tensors().back().name);

  server_.Fail({{Kind::kNoRange}});
  EXPECT_THROW(OpenRemoteHeader(hub, repository, files), Error);
}

}  // namespace
}  // namespace hearth::hub
