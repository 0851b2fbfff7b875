#include "symbolizer/recording/renamed.h"

#include <unordered_map>

#include "symbolizer/recording/inlined_frames.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kMaxShownBytes = 1ULL << 30;

class Renamed final : public Recording {
 public:
  Renamed(std::unique_ptr<Recording> recording, FrameNames names, FramePlaces places)
      : recording_(std::move(recording)),
        names_(std::move(names)),
        places_(std::move(places)),
        tables_(recording_->tables()),
        damage_(recording_->damage()) {
    for (const auto& [frame, name] : names_) {
      if (frame >= tables_.frames.size()) continue;
      Frame& named = tables_.frames[frame];
      if (named.kind == FrameKind::kPython) continue;
      named.symbol = string(name);
    }
    add_places();
    shown_ = recording::show_inlined(tables_, kMaxShownBytes);
    if (!shown_.problem.empty()) damage_.push_back(shown_.problem);
  }

  const Meta& meta() const override { return recording_->meta(); }
  const Tables& tables() const override { return tables_; }
  const Trailer& trailer() const override { return recording_->trailer(); }
  bool complete() const override { return recording_->complete(); }
  const std::vector<std::string>& damage() const override { return damage_; }
  std::uint64_t sample_count() const override { return recording_->sample_count(); }
  void for_each_sample(const std::function<void(const Sample&)>& visit) const override {
    if (shown_.stacks.empty()) return recording_->for_each_sample(visit);
    recording_->for_each_sample([&](const Sample& recorded) {
      Sample sample = recorded;
      sample.stack = shown_.now(recorded.stack);
      visit(sample);
    });
  }

 private:
  StringId string(const std::string& text) {
    if (text.empty()) return 0;
    auto [at, added] = known_.try_emplace(text, static_cast<StringId>(tables_.strings.size()));
    if (added) tables_.strings.push_back(text);
    return at->second;
  }

  // Before those of the recording: of two for one frame the first holds.
  void add_places() {
    std::vector<SourcePlaces> rows;
    for (const auto& [frame, chain] : places_) {
      if (chain.empty() || chain.size() > kMaxInlined + 1) continue;
      SourcePlaces& row = rows.emplace_back(SourcePlaces{frame, {}});
      for (const NamedPlace& place : chain)
        row.chain.push_back(
            {string(place.function), string(place.file), place.line, place.declared});
    }
    auto& recorded = tables_.source_places;
    recorded.insert(recorded.begin(), rows.begin(), rows.end());
  }

  std::unique_ptr<Recording> recording_;
  const FrameNames names_;  // the tables' strings point here
  const FramePlaces places_;
  Tables tables_;
  std::vector<std::string> damage_;
  std::unordered_map<std::string_view, StringId> known_;
  recording::InlinedShown shown_;
};

}  // namespace

std::unique_ptr<Recording> with_names(std::unique_ptr<Recording> recording, FrameNames names,
                                      FramePlaces places) {
  return std::make_unique<Renamed>(std::move(recording), std::move(names), std::move(places));
}

}  // namespace dynprof
