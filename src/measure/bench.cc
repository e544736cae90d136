#include "measure/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/session/text_windows.h"
#include "engine/session/token_scores.h"
#include "measure/topic_walk.h"
#include "ops/probe.h"
#include "ops/sparse_ffn.h"

namespace hearth {
namespace {

// Of a context that repeats itself: whole pages.
constexpr int64_t kRepeatedTokens = 4 * KvLayout::kPageTokens;

// The same in every run, so that runs compare.
constexpr uint64_t kTokenSeed = 20;
constexpr double kInt8ProbeSeconds = 0.03;
constexpr double kStorageProbeSeconds = 0.2;
constexpr int64_t kWarmUpTokens = 16;
// Enough to tell an agreement of 99% from one of 98%, in windows as long as most prompts.
constexpr int64_t kQualityTokens = 1024;
constexpr int64_t kQualityWindow = 512;

// Records the ops of passes while it lives; null records nothing.
class OpRecording {
 public:
  OpRecording(TransformerPass& pass, OpSeconds* seconds) : pass_(pass) { pass_.RecordOps(seconds); }
  ~OpRecording() { pass_.RecordOps(nullptr); }
  OpRecording(const OpRecording&) = delete;
  OpRecording& operator=(const OpRecording&) = delete;

 private:
  TransformerPass& pass_;
};

// Counts the neurons of passes while it lives.
class FfnCounting {
 public:
  FfnCounting(const TransformerPass& pass, SparseFfnCounts& counts)
      : pass_(pass), counts_(counts), before_(pass.ffn_counts()) {}
  ~FfnCounting() {
    counts_ += pass_.ffn_counts();
    counts_ -= before_;
  }
  FfnCounting(const FfnCounting&) = delete;
  FfnCounting& operator=(const FfnCounting&) = delete;

 private:
  const TransformerPass& pass_;
  SparseFfnCounts& counts_;
  const SparseFfnCounts before_;
};

int64_t MostParallel(const BenchOptions& options) {
  return options.parallel.empty() ? 0 : *std::ranges::max_element(options.parallel);
}

OpSeconds Divided(OpSeconds seconds, int64_t count) {
  for (double& s : seconds) s /= static_cast<double>(count);
  return seconds;
}

// Measures one thing at a time; collects what was measured.
class Bench {
 public:
  Bench(Engine& engine, const ProbeMemory& memory, const BenchOptions& options,
        const BenchProgressFn& progress)
      : engine_(engine),
        memory_(memory),
        options_(options),
        progress_(progress),
        prefill_tok_s_(options.prefill_tokens.size()),
        prefill_ops_(options.prefill_tokens.size()),
        prefill_ffn_(options.prefill_tokens.size()),
        parallel_(options.parallel.size()) {
    texts_.push_back(BenchTokens(engine.model(), BenchContext(options)));
    const int64_t decoding = options.decode_context + options.decode_tokens;
    for (int64_t i = 1; i < MostParallel(options); ++i) {
      texts_.push_back(BenchTokens(engine.model(), decoding, static_cast<uint64_t>(i)));
    }
    int64_t once = decoding;
    for (const int64_t tokens : options.prefill_tokens) once += tokens;
    for (const int64_t sequences : options.parallel) once += sequences * decoding;
    total_tokens_ = static_cast<uint64_t>(once * options.repetitions);
  }

  void Run() {
    WarmUp();
    for (int64_t repetition = 0; repetition < options_.repetitions; ++repetition) {
      for (size_t i = 0; i < options_.prefill_tokens.size(); ++i) {
        Probe();
        MeasurePrefill(i);
      }
      Probe();
      MeasureDecode();
      for (size_t i = 0; i < options_.parallel.size(); ++i) MeasureParallel(i);
    }
    Probe();
    if (HasQuality()) MeasureQuality();
  }

  BenchResult Result() const {
    const ModelSpec& spec = engine_.model().spec();
    const ModelWeights& weights = engine_.model().weights();
    const PassLimits& limits = engine_.pass().limits();
    BenchResult result;
    for (size_t i = 0; i < options_.prefill_tokens.size(); ++i) {
      const int64_t tokens = options_.prefill_tokens[i];
      result.prefill.push_back({tokens, SpreadOf(prefill_tok_s_[i]),
                                EstimatePrompt(spec, weights, tokens, limits.max_tokens,
                                               limits.kv_codec, Activity(prefill_ffn_[i], tokens)),
                                Divided(prefill_ops_[i], options_.repetitions)});
    }
    const EstimatedPass mean_token{
        .tokens = 1,
        .context = options_.decode_context + (options_.decode_tokens - 1) / 2,
        .logit_rows = 1,
        .kv_codec = limits.kv_codec,
        .ffn = Activity(decode_ffn_, options_.decode_tokens)};
    result.decode = {options_.decode_tokens,
                     options_.decode_context,
                     SpreadOf(decode_tok_s_),
                     EstimatePass(spec, weights, mean_token),
                     Divided(decode_ops_, options_.repetitions * options_.decode_tokens),
                     latencies_ms_,
                     stream_,
                     miss_rates_};
    for (size_t i = 0; i < options_.parallel.size(); ++i) {
      const Together& together = parallel_[i];
      const int64_t sequences = options_.parallel[i];
      const int64_t passes = options_.repetitions * options_.decode_tokens;
      result.parallel.push_back({sequences, options_.decode_tokens, options_.decode_context,
                                 SpreadOf(together.tok_s), Divided(together.ops, passes),
                                 together.stream, passes * sequences});
    }
    if (meter_) result.quality = meter_->Result();
    result.quality_tokens = quality_tokens_;
    if (!read_bytes_per_s_.empty()) result.read_bytes_per_s = Median(read_bytes_per_s_);
    result.int8_macs_per_s = Median(int8_macs_per_s_);
    if (!storage_bytes_per_s_.empty()) result.storage_bytes_per_s = Median(storage_bytes_per_s_);
    return result;
  }

 private:
  // The first use of memory and threads costs what no later one does.
  void WarmUp() {
    Report("warm-up");
    const std::vector<TokenId>& text = texts_.front();
    Prompt(text, std::min<int64_t>(kWarmUpTokens, std::ssize(text)), "warm-up", false);
    ProbeInt8(engine_.compute(), kInt8ProbeSeconds);
  }

  void Probe() {
    if (!memory_.bytes().empty()) {
      read_bytes_per_s_.push_back(ProbeRead(engine_.compute(), memory_.bytes()).PerSecond());
    }
    int8_macs_per_s_.push_back(ProbeInt8(engine_.compute(), kInt8ProbeSeconds).PerSecond());
    if (const auto storage = engine_.ProbeStorage(kStorageProbeSeconds)) {
      storage_bytes_per_s_.push_back(*storage);
    }
  }

  void MeasurePrefill(size_t index) {
    const int64_t tokens = options_.prefill_tokens[index];
    const std::string measure = fmt::format("prefill {}", tokens);
    const OpRecording recording(engine_.pass(), options_.profile ? &prefill_ops_[index] : nullptr);
    const FfnCounting counting(engine_.pass(), prefill_ffn_[index]);
    const Stopwatch watch;
    Prompt(texts_.front(), tokens, measure, true);
    prefill_tok_s_[index].push_back(static_cast<double>(tokens) / watch.Seconds());
  }

  void MeasureDecode() {
    KvSequence kv = Context(texts_.front(), "decode");
    const OpRecording recording(engine_.pass(), options_.profile ? &decode_ops_ : nullptr);
    const FfnCounting counting(engine_.pass(), decode_ffn_);
    double seconds = 0;
    for (int64_t i = 0; i < options_.decode_tokens; ++i) {
      const StreamCounts before = engine_.stream_counts();
      const Stopwatch watch;
      Pass(PassKind::kDecode, texts_.front(), kv, 1, true, engine_.selector());
      const double elapsed = watch.Seconds();
      CountStreamed(before);
      latencies_ms_.push_back(1000 * elapsed);
      seconds += elapsed;
      ++done_tokens_;
      Report("decode");
    }
    decode_tok_s_.push_back(static_cast<double>(options_.decode_tokens) / seconds);
  }

  // As MeasureDecode, a token of each of some texts in a pass.
  void MeasureParallel(size_t index) {
    const auto sequences = static_cast<size_t>(options_.parallel[index]);
    const std::string measure = fmt::format("decode {} together", sequences);
    Together& together = parallel_[index];
    std::vector<KvSequence> kv;
    for (size_t i = 0; i < sequences; ++i) {
      kv.push_back(Context(texts_[i], measure));
    }
    const OpRecording recording(engine_.pass(), options_.profile ? &together.ops : nullptr);
    const StreamCounts before = engine_.stream_counts();
    double seconds = 0;
    for (int64_t i = 0; i < options_.decode_tokens; ++i) {
      const Stopwatch watch;
      std::vector<BatchSequence> batch;
      for (size_t j = 0; j < sequences; ++j) {
        batch.push_back(
            {&kv[j], std::span(texts_[j]).subspan(static_cast<size_t>(kv[j].length()), 1)});
      }
      engine_.pass().Run({PassKind::kDecode, batch}, engine_.selector());
      for (size_t first = 0; first < sequences; first += TransformerPass::kMaxLogitRows) {
        const auto left = static_cast<int64_t>(sequences - first);
        engine_.pass().Logits(static_cast<int64_t>(first),
                              std::min(left, TransformerPass::kMaxLogitRows));
      }
      seconds += watch.Seconds();
      done_tokens_ += sequences;
      Report(measure);
    }
    StreamCounts read = engine_.stream_counts();
    together.stream += read -= before;
    together.tok_s.push_back(
        static_cast<double>(options_.decode_tokens * static_cast<int64_t>(sequences)) / seconds);
  }

  // What is decoded after.
  KvSequence Context(const std::vector<TokenId>& text, const std::string& measure) {
    const int64_t tokens = options_.decode_context;
    const int64_t computed = options_.repeats_context ? std::min(tokens, kRepeatedTokens) : tokens;
    KvSequence first = Prompt(text, computed, measure, true);
    if (computed == tokens) return first;
    KvPool& pool = engine_.kv_pool();
    std::vector<std::vector<std::byte>> pages;
    for (const KvPageId page : first.page_ids()) {
      pool.CopyOut(page, 0, pages.emplace_back(pool.layout().page_bytes()));
    }
    first.Truncate(0);
    KvSequence all(pool);
    all.AppendSaved(tokens);
    for (size_t i = 0; i < all.page_ids().size(); ++i) {
      pool.CopyIn(all.page_ids()[i], 0, pages[i % pages.size()]);
    }
    done_tokens_ += static_cast<uint64_t>(tokens - computed);
    return all;
  }

  // The first `tokens` tokens of a text in an empty context, and the logits of the last one.
  KvSequence Prompt(const std::vector<TokenId>& text, int64_t tokens, const std::string& measure,
                    bool counts) {
    KvSequence kv(engine_.kv_pool());
    const int64_t limit = engine_.pass().limits().max_tokens;
    while (kv.length() < tokens) {
      const int64_t count = std::min(limit, tokens - kv.length());
      Pass(PassKind::kPrefill, text, kv, count, kv.length() + count == tokens,
           engine_.prefill_selector());
      if (counts) done_tokens_ += static_cast<uint64_t>(count);
      Report(measure);
    }
    return kv;
  }

  void Pass(PassKind kind, const std::vector<TokenId>& text, KvSequence& kv, int64_t count,
            bool wants_logits, ActivationSelector& selector) {
    const auto begin = static_cast<size_t>(kv.length());
    const BatchSequence sequence{&kv, std::span(text).subspan(begin, static_cast<size_t>(count))};
    engine_.pass().Run({kind, {&sequence, 1}}, selector);
    if (wants_logits) engine_.pass().Logits(count - 1, 1);
  }

  void CountStreamed(const StreamCounts& before) {
    StreamCounts token = engine_.stream_counts();
    token -= before;
    stream_ += token;
    if (token.neurons > 0) {
      miss_rates_.push_back(static_cast<double>(token.misses) / static_cast<double>(token.neurons));
    }
  }

  // Where neurons can be silent.
  bool HasQuality() const { return CanSkipNeurons(MainFfn(engine_.model().spec()).activation); }

  // Runs some of the text once more, watched, and densely to compare.
  void MeasureQuality() {
    Report("quality");
    meter_.emplace(engine_.model().spec());
    const std::vector<TokenId> text = BenchTokens(engine_.model(), kQualityTokens);
    const TextWindows windows(text, -1, std::min(kQualityWindow, engine_.context()));
    for (uint64_t i = 0; i < windows.size(); ++i) {
      const std::vector<TokenId> window = windows.Window(i);
      std::vector<TokenId> likeliest;
      if (engine_.mode() != FfnMode::kDense) {
        DenseSelector dense;
        likeliest = Likeliest(window, dense, nullptr);
      }
      const std::vector<TokenId> own = Likeliest(window, engine_.selector(), &*meter_);
      for (size_t j = 0; j < likeliest.size(); ++j) meter_->CountTop1(own[j] == likeliest[j]);
    }
    quality_tokens_ = std::ssize(text);
  }

  // The likeliest successors of a text's tokens.
  std::vector<TokenId> Likeliest(std::span<const TokenId> text, ActivationSelector& selector,
                                 PassObserver* observer) {
    std::vector<TokenId> best;
    ForAllLogits(
        engine_.pass(), engine_.kv_pool(), text, selector, observer,
        [&](size_t, std::span<const float> logits) { best.push_back(LikeliestToken(logits)); });
    return best;
  }

  // Neurons per token, where `tokens` were computed in every repetition.
  FfnActivity Activity(const SparseFfnCounts& counts, int64_t tokens) const {
    const auto all = static_cast<double>(tokens * options_.repetitions);
    return {.gate = static_cast<double>(counts.gate) / all,
            .up = static_cast<double>(counts.up) / all,
            .down = static_cast<double>(counts.active) / all,
            .predictors =
                engine_.mode() == FfnMode::kPredicted ? engine_.model().predictors() : nullptr};
  }

  void Report(const std::string& measure) const {
    if (progress_) progress_(done_tokens_, total_tokens_, measure);
  }

  Engine& engine_;
  const ProbeMemory& memory_;
  const BenchOptions& options_;
  const BenchProgressFn& progress_;
  // What sequences that go on together leave.
  struct Together {
    std::vector<double> tok_s;
    OpSeconds ops{};  // over all passes and repetitions
    StreamCounts stream;
  };

  std::vector<std::vector<TokenId>> texts_;
  uint64_t done_tokens_ = 0;
  uint64_t total_tokens_ = 0;
  std::vector<std::vector<double>> prefill_tok_s_;  // per length, per repetition
  std::vector<OpSeconds> prefill_ops_;              // per length, over all repetitions
  std::vector<double> decode_tok_s_;
  OpSeconds decode_ops_{};                    // over all tokens and repetitions
  std::vector<SparseFfnCounts> prefill_ffn_;  // as the times
  SparseFfnCounts decode_ffn_;
  std::vector<Together> parallel_;  // per number of sequences
  std::optional<QualityMeter> meter_;
  int64_t quality_tokens_ = 0;
  std::vector<double> latencies_ms_;
  StreamCounts stream_;  // of decoding
  std::vector<double> miss_rates_;
  std::vector<double> read_bytes_per_s_;
  std::vector<double> int8_macs_per_s_;
  std::vector<double> storage_bytes_per_s_;
};

}  // namespace

std::vector<TokenId> BenchTokens(const GgufMetadata& metadata, int64_t vocab_size, int64_t count,
                                 uint64_t number) {
  if (const auto topics = TopicMap::FromMetadata(metadata, vocab_size)) {
    return TopicWalk(*topics, kBenchWalk + number).Take(count);
  }
  std::mt19937_64 random(kTokenSeed + number);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % static_cast<uint64_t>(vocab_size));
  }
  return tokens;
}

std::vector<TokenId> BenchTokens(const Model& model, int64_t count, uint64_t number) {
  return BenchTokens(model.metadata(), model.spec().vocab_size, count, number);
}

int64_t BenchContext(const BenchOptions& options) {
  int64_t tokens = options.decode_context + options.decode_tokens;
  for (const int64_t prompt : options.prefill_tokens) tokens = std::max(tokens, prompt);
  return tokens;
}

BenchResult RunBench(Engine& engine, const ProbeMemory& memory, const BenchOptions& options,
                     const BenchProgressFn& progress) {
  if (BenchContext(options) > engine.context()) {
    throw Error(ErrorCode::kInvalidArgument, "bench", "tokens that it needs in the context",
                fmt::format("at most {}", engine.context()), std::to_string(BenchContext(options)));
  }
  const int64_t most = engine.pass().limits().max_tokens;
  if (MostParallel(options) > most) {
    throw Error(ErrorCode::kInvalidArgument, "bench", "sequences in a pass",
                fmt::format("at most {}", most), std::to_string(MostParallel(options)));
  }
  Bench bench(engine, memory, options, progress);
  bench.Run();
  return bench.Result();
}

}  // namespace hearth
