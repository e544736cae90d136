// The curl commands of README.md and docs/server.md, run as they are written there against the
// server that those pages start; only the port is another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/test_data.h"
#include "cli/screen/output.h"
#include "server_process.h"

namespace hearth {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kAddress[] = "http://127.0.0.1:8080";
constexpr char kModel[] = "models/hearth-stories-5m.gguf";

// The commands of a page's code that begin so. A command goes on over lines where a quote is open
// or a backslash ends the line.
std::vector<std::string> CommandsOf(const std::string& page, const std::string& program) {
  std::vector<std::string> commands;
  std::istringstream lines(ReadWholeFile(SourcePath(page)));
  bool goes_on = false;
  for (std::string line; std::getline(lines, line);) {
    constexpr size_t kIndent = 4;
    const bool is_code = line.size() > kIndent && line.find_first_not_of(' ') >= kIndent;
    if (!is_code) {
      EXPECT_FALSE(goes_on) << page << ": " << commands.back();
      continue;
    }
    line.erase(0, kIndent);
    if (!goes_on && line.rfind(program + " ", 0) != 0) continue;
    if (goes_on) {
      commands.back() += line + "\n";
    } else {
      commands.push_back(line + "\n");
    }
    const std::string& command = commands.back();
    goes_on = line.back() == '\\' || std::count(command.begin(), command.end(), '\'') % 2 != 0;
  }
  return commands;
}

// With "fail where the server says so, and show what it said" in curl's own settings.
class DocumentedCommandsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = ::testing::TempDir() + "hearth_curl." + std::to_string(getpid());
    std::filesystem::create_directory(folder_);
    std::ofstream(folder_ + "/.curlrc") << "silent\nshow-error\nfail-with-body\n";
    setenv("CURL_HOME", folder_.c_str(), 1);
    server_ = std::make_unique<ServerProcess>(SourcePath(kModel), std::vector<std::string>{});
  }
  static void TearDownTestSuite() {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  static std::string Run(std::string command) {
    const std::string address = "http://127.0.0.1:" + std::to_string(server_->port());
    size_t at = command.find(kAddress);
    EXPECT_NE(at, std::string::npos) << command;
    command.replace(at, std::string(kAddress).size(), address);
    FILE* pipe = popen(command.c_str(), "r");
    std::string output;
    for (int byte = std::fgetc(pipe); byte != EOF; byte = std::fgetc(pipe)) {
      output += static_cast<char>(byte);
    }
    EXPECT_EQ(pclose(pipe), 0) << command << output;
    return output;
  }

  static std::string folder_;
  static std::unique_ptr<ServerProcess> server_;
};
std::string DocumentedCommandsTest::folder_;
std::unique_ptr<ServerProcess> DocumentedCommandsTest::server_;

void CheckStream(const std::string& output) {
  EXPECT_THAT(output, StartsWith("data: {"));
  EXPECT_THAT(output, EndsWith("data: [DONE]\n\n"));
}

void CheckChat(const json& answer) {
  const json& message = answer.at("choices").at(0).at("message");
  if (!message.contains("tool_calls")) {
    EXPECT_THAT(message.at("content").get<std::string>(), Not(IsEmpty()));
    return;
  }
  EXPECT_TRUE(message.at("content").is_null());
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  const json& function = message["tool_calls"].at(0).at("function");
  EXPECT_EQ(function.at("name"), "get_weather");
  const json arguments = json::parse(function.at("arguments").get<std::string>());
  EXPECT_THAT(arguments.at("city"), ::testing::AnyOf("Oslo", "Rome"));
}

// Whether the answer is what the page says the endpoint answers.
void CheckAnswer(const std::string& command, const std::string& output) {
  const size_t path_at = command.find(kAddress) + std::string(kAddress).size();
  const std::string path = command.substr(path_at, command.find_first_of(" \n", path_at) - path_at);
  if (command.find("\"stream\": true") != std::string::npos) return CheckStream(output);
  if (path == "/metrics") {
    EXPECT_THAT(output, HasSubstr("\n# TYPE hearth_"));
    return;
  }
  const json answer = json::parse(output);
  if (path == "/v1/chat/completions") return CheckChat(answer);
  if (path == "/v1/completions") {
    EXPECT_THAT(answer.at("choices").at(0).at("text").get<std::string>(), Not(IsEmpty()));
  } else if (path == "/v1/embeddings") {
    EXPECT_EQ(answer.at("data").size(), 2u);
  } else if (path == "/tokenize") {
    EXPECT_FALSE(answer.at("tokens").empty());
  } else if (path == "/detokenize") {
    EXPECT_THAT(answer.at("content").get<std::string>(), Not(IsEmpty()));
  } else if (path == "/v1/models") {
    EXPECT_EQ(answer.at("data").at(0).at("id"), "hearth-stories-5m");
  } else if (path == "/health") {
    EXPECT_EQ(answer.at("status"), "ok");
  } else if (path == "/v1/hearth/stats") {
    EXPECT_TRUE(answer.contains("memory"));
  } else if (path == "/v1/hearth/neurons") {
    EXPECT_TRUE(answer.contains("shape"));
  } else {
    ADD_FAILURE() << "a command of which this test does not know what it answers: " << command;
  }
}

TEST_F(DocumentedCommandsTest, WorkAsWritten) {
  if (std::system("command -v curl >/dev/null") != 0) {
    if (std::getenv("CI") != nullptr) FAIL() << "curl is missing in CI";
    GTEST_SKIP() << "curl is missing";
  }
  for (const auto& [page, least] : {std::pair("README.md", 1u), std::pair("docs/server.md", 12u)}) {
    SCOPED_TRACE(page);
    const std::vector<std::string> commands = CommandsOf(page, "curl");
    EXPECT_GE(commands.size(), least);
    EXPECT_THAT(ReadWholeFile(SourcePath(page)),
                HasSubstr("    hearth serve " + std::string(kModel) + "\n"));
    for (const std::string& command : commands) {
      SCOPED_TRACE(command);
      CheckAnswer(command, Run(command));
    }
  }
}

// A newcomer needs the name of a model, not the pattern of one.
TEST(ReadmeTest, NamesModelsThatCanBeFetched) {
  const std::string page = ReadWholeFile(SourcePath("README.md"));
  const std::regex command("\n    hearth get ([^ \n]+)");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(page, found, command));
  const std::string name = found[1];
  EXPECT_THAT(name, Not(HasSubstr("OWNER")));
  EXPECT_THAT(page, HasSubstr("(https://huggingface.co/" + name + ")"));
  EXPECT_THAT(page, HasSubstr("The weights are synthesized")) << "of the speeds";
  EXPECT_THAT(page, HasSubstr("Windows and macOS")) << "what it does not run on";
}

// The settings that errors are about, as the library's sources name them.
std::set<std::string> FieldsOfErrors() {
  const std::regex field(R"re((?:Field\{|CheckRange\(|CheckShare\(|ThrowUnknown\()"([^"]+)")re");
  std::set<std::string> fields;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(SourcePath("src"))) {
    const std::string path = entry.path().string();
    if (!path.ends_with(".cc") || path.ends_with("_test.cc")) continue;
    const std::string source = ReadWholeFile(path);
    for (std::sregex_iterator it(source.begin(), source.end(), field), end; it != end; ++it) {
      fields.insert((*it)[1]);
    }
  }
  return fields;
}

// Else the command line names an option that it does not have.
TEST(ErrorFieldsTest, AreOptionsOfTheCommandLine) {
  const std::string page = ReadWholeFile(SourcePath("docs/commands.md"));
  const std::set<std::string> of_requests = {"messages", "tools", "top_logprobs"};
  const std::set<std::string> of_the_library = {"router_topic_share", "topic_stay", "topics"};
  const std::set<std::string> fields = FieldsOfErrors();
  EXPECT_EQ(fields.count("top_p"), 1u) << "the sources are found";
  for (const std::string& field : fields) {
    if (of_requests.count(field) > 0 || of_the_library.count(field) > 0) continue;
    const std::string option =
        cli::OptionName(Error(ErrorCode::kInvalidArgument, Field{field}, ""));
    EXPECT_NE(page.find("--" + option + " "), std::string::npos) << field;
  }
}

}  // namespace
}  // namespace hearth
