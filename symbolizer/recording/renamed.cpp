#include "symbolizer/recording/renamed.h"

#include <unordered_map>

namespace dynprof {
namespace {

class Renamed final : public Recording {
 public:
  Renamed(std::unique_ptr<Recording> recording, FrameNames names)
      : recording_(std::move(recording)), names_(std::move(names)), tables_(recording_->tables()) {
    std::unordered_map<std::string_view, StringId> known;
    for (const auto& [frame, name] : names_) {
      if (frame >= tables_.frames.size()) continue;
      Frame& named = tables_.frames[frame];
      if (named.kind == FrameKind::kPython) continue;
      auto [at, added] = known.try_emplace(name, static_cast<StringId>(tables_.strings.size()));
      if (added) tables_.strings.push_back(name);
      named.symbol = at->second;
    }
  }

  const Meta& meta() const override { return recording_->meta(); }
  const Tables& tables() const override { return tables_; }
  const Trailer& trailer() const override { return recording_->trailer(); }
  bool complete() const override { return recording_->complete(); }
  const std::vector<std::string>& damage() const override { return recording_->damage(); }
  std::uint64_t sample_count() const override { return recording_->sample_count(); }
  void for_each_sample(const std::function<void(const Sample&)>& visit) const override {
    recording_->for_each_sample(visit);
  }

 private:
  std::unique_ptr<Recording> recording_;
  const FrameNames names_;  // the tables' strings point here
  Tables tables_;
};

}  // namespace

std::unique_ptr<Recording> with_names(std::unique_ptr<Recording> recording, FrameNames names) {
  return std::make_unique<Renamed>(std::move(recording), std::move(names));
}

}  // namespace dynprof
