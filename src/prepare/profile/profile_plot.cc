#include "prepare/profile/profile_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "prepare/shapes/svg.h"
#include "sparsity/profile_stats.h"
#include "tensor/op_names.h"

namespace hearth {
namespace {

struct Rgb {
  double r, g, b;
};

// Pale to dark; told apart in grey and by most colour-blind readers, since lightness falls evenly.
constexpr std::array<Rgb, 5> kHeat = {
    {{254, 240, 217}, {253, 204, 138}, {252, 141, 89}, {215, 48, 31}, {103, 0, 13}}};
// Of the layers' lines, first to last.
constexpr std::array<Rgb, 2> kLayers = {{{246, 194, 138}, {140, 60, 20}}};
constexpr std::string_view kWholeModel = "#1f6fae";

constexpr int kPoints = 200;  // of a line
constexpr int kBins = 96;     // of a row of the heat map
constexpr int kHeatSteps = 48;
// Pixels that neighbours of the heat map overlap by, so that no page shows between them.
constexpr double kOverlap = 0.4;
// Rates from one in a thousand to all are told apart.
constexpr double kDecades = 3;

constexpr double kPageWidth = 1000, kPageHeight = 470;

struct Panel {
  double left, top, width, height;

  SvgPoint At(double x, double y) const {  // x to the right, y up, both 0 to 1
    return {left + x * width, top + (1 - y) * height};
  }
};
constexpr Panel kCurves = {72, 92, 350, 290};
constexpr Panel kMap = {530, 92, 350, 290};

template <size_t n>
std::string ColorAt(const std::array<Rgb, n>& scale, double t) {
  const double place = std::clamp(t, 0.0, 1.0) * (n - 1);
  const auto low = std::min(static_cast<size_t>(place), n - 2);
  const double part = place - static_cast<double>(low);
  const auto mix = [&](double a, double b) {
    return static_cast<int>(std::lround(a + part * (b - a)));
  };
  const Rgb &a = scale[low], &b = scale[low + 1];
  return fmt::format("#{:02x}{:02x}{:02x}", mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b));
}

double LayerPlace(const ModelProfile& profile, int64_t layer) {
  return profile.num_layers == 1
             ? 1
             : static_cast<double>(layer) / static_cast<double>(profile.num_layers - 1);
}

// Axes with a tick every fifth from 0 to 100%.
void DrawShareAxis(Svg& svg, const Panel& panel, std::string_view label) {
  svg.Line(panel.At(0, 0), panel.At(1, 0), {});
  for (int i = 0; i <= 5; ++i) {
    const SvgPoint at = panel.At(i / 5.0, 0);
    svg.Line(at, {at.x, at.y + 5}, {});
    svg.Text({at.x, at.y + 18}, fmt::format("{}%", 20 * i), {.size = 11, .anchor = "middle"});
  }
  svg.Text({panel.left + panel.width / 2, panel.top + panel.height + 38}, label,
           {.anchor = "middle"});
}

void DrawCurve(Svg& svg, const std::vector<double>& weights, const SvgStroke& stroke) {
  std::vector<SvgPoint> points;
  const std::vector<double> shares = CumulativeShares(weights, kPoints);
  for (size_t i = 0; i < shares.size(); ++i) {
    points.push_back(kCurves.At(static_cast<double>(i) / kPoints, shares[i]));
  }
  svg.Polyline(points, stroke);
}

void DrawCurves(Svg& svg, const ModelProfile& profile) {
  const bool sparse = profile.goes_sparse();
  const NeuronWeight kind = sparse ? NeuronWeight::kActivations : NeuronWeight::kOutput;
  const std::string what = sparse ? "activations" : "output";
  svg.Text({kCurves.left, 76}, fmt::format("How few neurons carry the {}", what),
           {.size = 14, .bold = true});
  for (int i = 0; i <= 5; ++i) {
    const SvgPoint at = kCurves.At(0, i / 5.0);
    if (i > 0) svg.Line(at, kCurves.At(1, i / 5.0), {.color = kSvgFaint});
    svg.Text({at.x - 8, at.y + 4}, fmt::format("{}%", 20 * i), {.size = 11, .anchor = "end"});
  }
  svg.Line(kCurves.At(0, 0), kCurves.At(0, 1), {});
  DrawShareAxis(svg, kCurves, fmt::format("neurons, those with most {} first", what));
  svg.Text({kCurves.left - 48, kCurves.top + kCurves.height / 2},
           fmt::format("share of all {}", what), {.anchor = "middle", .degrees = -90});
  for (int64_t layer = 0; layer < profile.num_layers; ++layer) {
    const std::string color = ColorAt(kLayers, LayerPlace(profile, layer));
    DrawCurve(svg, NeuronWeights(profile, layer, kind), {.color = color, .width = 1.2});
  }
  const std::vector<double> all = NeuronWeights(profile, -1, kind);
  DrawCurve(svg, all, {.color = kWholeModel, .width = 3});

  const double hot = CarryingShare(all, kHotShare);
  svg.Line(kCurves.At(0, kHotShare), kCurves.At(hot, kHotShare), {.dashed = true});
  svg.Line(kCurves.At(hot, kHotShare), kCurves.At(hot, 0), {.dashed = true});
}

// Under the axis of the curves.
void DrawLegend(Svg& svg, const ModelProfile& profile) {
  constexpr double kLetter = 6.7;  // pixels, on average
  const double y = kCurves.top + kCurves.height + 64;
  double x = kCurves.left;
  const auto entry = [&](std::string_view color, double width, const std::string& name) {
    svg.Line({x, y - 4}, {x + 24, y - 4}, {.color = color, .width = width});
    svg.Text({x + 30, y}, name, {});
    x += 52 + kLetter * static_cast<double>(name.size());
  };
  const bool sparse = profile.goes_sparse();
  const double hot = CarryingShare(
      NeuronWeights(profile, -1, sparse ? NeuronWeight::kActivations : NeuronWeight::kOutput),
      kHotShare);
  entry(kWholeModel, 3, fmt::format("whole model: {:.0f}% carry 80%", 100 * hot));
  for (const int64_t layer : {int64_t{0}, profile.num_layers - 1}) {
    entry(ColorAt(kLayers, LayerPlace(profile, layer)), 2, fmt::format("layer {}", layer));
    if (profile.num_layers == 1) break;
  }
}

// 0 to kHeatSteps - 1.
int HeatStep(double rate) {
  const double t = rate > 0 ? 1 + std::log10(rate) / kDecades : 0;
  return static_cast<int>(std::lround(std::clamp(t, 0.0, 1.0) * (kHeatSteps - 1)));
}

std::string HeatColor(int step) {
  return ColorAt(kHeat, static_cast<double>(step) / (kHeatSteps - 1));
}

// One rectangle per run of bins of one colour.
void DrawHeatRow(Svg& svg, const std::vector<double>& bins, double top, double height) {
  const auto place = [&](size_t bin) {
    return kMap.left + kMap.width * static_cast<double>(bin) / static_cast<double>(bins.size());
  };
  for (size_t begin = 0; begin < bins.size();) {
    const int step = HeatStep(bins[begin]);
    size_t end = begin + 1;
    while (end < bins.size() && HeatStep(bins[end]) == step) ++end;
    const double right = std::min(place(end) + kOverlap, kMap.left + kMap.width);
    svg.Rect({place(begin), top}, right - place(begin), height, HeatColor(step));
    begin = end;
  }
}

void DrawScale(Svg& svg) {
  const double left = kMap.left + kMap.width + 20;
  for (int step = 0; step < kHeatSteps; ++step) {
    const double height = kMap.height / kHeatSteps;
    const SvgPoint corner = {left, kMap.top + kMap.height - (step + 1) * height};
    svg.Rect(corner, 14, step == 0 ? height : height + kOverlap, HeatColor(step));
  }
  const char* const labels[] = {"0.1% or less", "1%", "10%", "100%"};
  for (int i = 0; i <= 3; ++i) {
    svg.Text({left + 19, kMap.At(0, i / 3.0).y + 4}, labels[i], {.size = 10});
  }
}

void DrawMap(Svg& svg, const ModelProfile& profile) {
  const bool sparse = profile.goes_sparse();
  svg.Text(
      {kMap.left, 76},
      sparse ? "How often neurons are active, by layer" : "How often gates are over zero, by layer",
      {.size = 14, .bold = true});
  const double height = kMap.height / static_cast<double>(profile.num_layers);
  for (int64_t layer = 0; layer < profile.num_layers; ++layer) {
    const std::vector<double> rates =
        sparse ? ActiveRates(profile, layer) : GateRates(profile, layer);
    const int bins = std::min<int>(kBins, static_cast<int>(rates.size()));
    const double top = kMap.top + kMap.height - static_cast<double>(layer + 1) * height;
    DrawHeatRow(svg, SortedBins(rates, bins), top, layer == 0 ? height : height + kOverlap);
  }
  const int64_t step = std::max<int64_t>(1, (profile.num_layers + 9) / 10);
  for (int64_t layer = 0; layer < profile.num_layers; layer += step) {
    const double y = kMap.top + kMap.height - (static_cast<double>(layer) + 0.5) * height;
    svg.Text({kMap.left - 8, y + 4}, std::to_string(layer), {.size = 11, .anchor = "end"});
  }
  svg.Text({kMap.left - 36, kMap.top + kMap.height / 2}, "layer",
           {.anchor = "middle", .degrees = -90});
  DrawShareAxis(svg, kMap,
                fmt::format("neurons of a layer, those {} most often first",
                            sparse ? "active" : "over zero"));
  DrawScale(svg);
}

}  // namespace

std::string PlotProfile(const ModelProfile& profile) {
  const std::string name = profile.model_name.empty() ? "model" : profile.model_name;
  const ActivationSummary all = Summarize(profile, -1);
  Svg svg(kPageWidth, kPageHeight, "Neuron activations of " + name);
  svg.Text({24, 30}, name, {.size = 17, .bold = true});
  svg.Text(
      {24, 50},
      fmt::format("{}, {} layers{} of {} neurons, {} tokens; {}",
                  FfnActivationName(profile.activation), profile.num_layers,
                  profile.num_experts > 0 ? fmt::format(", {} experts", profile.num_experts)
                                          : std::string(),
                  profile.intermediate_size, profile.text_tokens,
                  profile.goes_sparse()
                      ? fmt::format("{:.1f}% of neurons active for a token", 100 * all.active_rate)
                      : std::string("every neuron is active for every token")),
      {});
  DrawCurves(svg, profile);
  DrawLegend(svg, profile);
  DrawMap(svg, profile);
  return svg.Finish();
}

}  // namespace hearth
