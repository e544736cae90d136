#include "prepare/profile/profile_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "prepare/shapes/svg.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What is wrong with a document of elements and text, attributes in double quotes; empty where
// every element is closed in order.
std::string XmlComplaint(std::string_view xml) {
  std::vector<std::string> open;
  while (!xml.empty()) {
    const size_t begin = xml.find('<');
    for (const char c : xml.substr(0, begin)) {
      if (static_cast<unsigned char>(c) >= 0x80 || c == '>') return "a raw character in text";
    }
    if (begin == std::string_view::npos) break;
    const size_t end = xml.find('>', begin);
    if (end == std::string_view::npos) return "an element without end";
    const std::string_view tag = xml.substr(begin + 1, end - begin - 1);
    xml.remove_prefix(end + 1);
    if (tag.find('<') != std::string_view::npos) return "'<' inside an element";
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "an open quote";
    const std::string name(tag.substr(0, tag.find_first_of(" /", 1)));
    if (tag.front() == '/') {
      if (open.empty() || "/" + open.back() != name) return "misplaced end of " + name;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : "no end of " + open.back();
}

ModelProfile RandomProfile(int64_t layers, int64_t experts, int64_t neurons,
                           FfnActivation activation) {
  std::mt19937 random(4);
  ModelProfile profile;
  profile.model_name = "a <b> & \"c\" \x1b \xff";
  profile.activation = activation;
  profile.text_tokens = profile.total_tokens = 1000;
  profile.num_layers = layers;
  profile.num_experts = experts;
  profile.intermediate_size = neurons;
  profile.ffns.resize(static_cast<size_t>(layers * profile.ffns_per_layer()));
  for (FfnProfile& ffn : profile.ffns) {
    ffn.tokens = random() % 1001;
    for (int64_t j = 0; j < neurons; ++j) {
      ffn.gate_fired.push_back(random() % (ffn.tokens + 1));
      ffn.active.push_back(random() % (ffn.gate_fired.back() + 1));
      ffn.mass.push_back(static_cast<double>(ffn.active.back()));
      ffn.down_norm.push_back(1);
    }
  }
  return profile;
}

size_t Count(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) {
    ++count;
  }
  return count;
}

TEST(ProfilePlotTest, IsADocumentWhateverTheSizes) {
  for (const int64_t layers : {1, 2, 33}) {
    for (const int64_t neurons : {1, 5, 1000}) {
      const std::string svg = PlotProfile(RandomProfile(layers, 0, neurons, FfnActivation::kRelu));
      EXPECT_EQ(XmlComplaint(svg), "") << layers << " " << neurons;
      EXPECT_EQ(Count(svg, "<polyline"), static_cast<size_t>(layers) + 1)
          << "a line per layer and one for the model";
      EXPECT_THAT(svg, HasSubstr("a &lt;b&gt; &amp; &quot;c&quot; \\x1b \\xff"));
      EXPECT_THAT(svg, HasSubstr("How few neurons carry the activations"));
      EXPECT_THAT(svg, Not(HasSubstr("nan")));
    }
  }
  EXPECT_THAT(PlotProfile(RandomProfile(2, 3, 10, FfnActivation::kRelu)), HasSubstr("3 experts"));
}

TEST(ProfilePlotTest, SiluIsSaidToBeActiveAlways) {
  const std::string svg = PlotProfile(RandomProfile(2, 0, 64, FfnActivation::kSilu));
  EXPECT_EQ(XmlComplaint(svg), "");
  EXPECT_THAT(svg, HasSubstr("every neuron is active for every token"));
  EXPECT_THAT(svg, HasSubstr("How few neurons carry the output"));
  EXPECT_THAT(svg, HasSubstr("How often gates are over zero"));
}

TEST(ProfilePlotTest, NeuronsThatNeverFireAreDrawnToo) {
  ModelProfile profile = RandomProfile(2, 0, 64, FfnActivation::kRelu);
  for (FfnProfile& ffn : profile.ffns) {
    ffn.active.assign(64, 0);
    ffn.mass.assign(64, 0);
  }
  const std::string svg = PlotProfile(profile);
  EXPECT_EQ(XmlComplaint(svg), "");
  EXPECT_THAT(svg, HasSubstr("0% carry 80%"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(SvgTest, FollowsThePagesScheme) {
  Svg svg(10, 20, "title");
  const SvgPoint points[] = {{0, 0}, {1, 2}};
  svg.Polyline(points, {.color = kSvgFaint, .dashed = true});
  svg.Rect({1, 2}, 3, 4, "#123456");
  svg.Text({1, 2}, "turned", {.degrees = -90});
  const std::string text = svg.Finish();
  EXPECT_EQ(XmlComplaint(text), "");
  EXPECT_THAT(text, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(text, HasSubstr("class=\"faint\""));
  EXPECT_THAT(text, HasSubstr("rotate(-90 1.0 2.0)"));
  EXPECT_THAT(text, HasSubstr("fill=\"#123456\""));
}

}  // namespace
}  // namespace hearth
