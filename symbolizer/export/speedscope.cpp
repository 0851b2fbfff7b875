#include "symbolizer/export/speedscope.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "symbolizer/base/json_writer.h"
#include "symbolizer/export/display.h"
#include "symbolizer/export/formats.h"
#include "symbolizer/export/select.h"
#include "symbolizer/profile/timeline.h"

namespace dynprof {
namespace {

// Consecutive samples of one thread with the same stack: what is kept of the samples, because the
// format wants each thread in one piece.
struct Run {
  StackId stack = 0;
  bool root_missing = false;
  std::uint64_t ns = 0;
};

struct Profile {
  std::int32_t pid = 0;
  std::int32_t tid = 0;
  StringId comm = 0;
  std::uint64_t ns = 0;
  std::vector<Run> runs;
};

class Speedscope {
 public:
  Speedscope(const Analysis& analysis, ByteSink& sink)
      : attribution_(analysis.attribution()),
        tables_(analysis.tables()),
        index_(analysis.stacks()),
        json_(sink) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> known;
    for (const Thread& thread : tables_.threads) {
      auto [it, added] = known.try_emplace({thread.pid, thread.tid}, profiles_.size());
      if (added) profiles_.push_back(Profile{thread.pid, thread.tid, 0, 0, {}});
      profiles_[it->second].comm = thread.comm;
      profile_of_thread_.push_back(it->second);
    }
  }

  void add(const AttributedSample& at) {
    const Sample& sample = at.sample;
    const std::uint64_t ns = std::max<std::uint64_t>(at.cpu_ns, 1);  // none may go unseen
    Profile& profile = profiles_[profile_of_thread_[sample.thread]];
    profile.ns += ns;
    bool missing = root_missing(sample);
    if (!profile.runs.empty()) {
      Run& last = profile.runs.back();
      if (last.stack == sample.stack && last.root_missing == missing) {
        last.ns += ns;
        return;
      }
    }
    profile.runs.push_back(Run{sample.stack, missing, ns});
  }

  Result<void> finish() {
    json_.begin_object();
    json_.field("$schema", "https://www.speedscope.app/file-format-schema.json");
    json_.field("exporter", "dynprof-bpf " + attribution_.recording().meta().version);
    json_.field("name", cap_text(attribution_.recording().meta().command));
    json_.field("activeProfileIndex", 0);
    json_.key("shared");
    json_.begin_object();
    json_.key("frames");
    frames();
    json_.end_object();
    json_.key("profiles");
    json_.begin_array();
    for (const Profile& profile : profiles_) {
      if (profile.ns > 0) write(profile);
    }
    json_.end_array();
    json_.end_object();
    return json_.finish();
  }

 private:
  static constexpr std::uint32_t kUnseen = std::numeric_limits<std::uint32_t>::max();

  // Those that occur, in the order in which their numbers are given out here.
  void frames() {
    json_.begin_array();
    json_.begin_object();
    json_.field("name", "<root side missing>");  // number 0
    json_.end_object();
    std::uint32_t next = 1;
    numbers_.resize(index_.function_count(), kUnseen);
    std::vector<bool> seen(tables_.stacks.size(), false);
    for (const Profile& profile : profiles_) {
      for (const Run& run : profile.runs) {
        StackId node = run.stack;
        for (; index_.depth(node) > 0 && !seen[node]; node = index_.caller(node)) {
          seen[node] = true;
          if (number(node) != kUnseen) continue;
          number(node) = next++;
          frame(attribution_.frames()[index_.frame(node)]);
        }
      }
    }
    json_.end_array();
  }
  std::uint32_t& number(StackId node) { return numbers_[index_.function(node)]; }

  void frame(const ResolvedFrame& frame) {
    json_.line_break();
    json_.begin_object();
    json_.field("name", display_name(frame));
    std::string_view file = frame.source_file.empty() ? frame.file : frame.source_file;
    if (!file.empty()) json_.field("file", cap_text(file));
    if (frame.first_line > 0) json_.field("line", frame.first_line);
    json_.end_object();
  }

  void write(const Profile& profile) {
    json_.line_break();
    json_.begin_object();
    json_.field("type", "sampled");
    json_.field("name", "pid " + std::to_string(profile.pid) + " thread " +
                            std::to_string(profile.tid) + " (" +
                            cap_text(tables_.strings[profile.comm]) + ')');
    json_.field("unit", "seconds");
    json_.key("startValue");
    json_.seconds(0);
    json_.key("endValue");
    json_.seconds(profile.ns);
    json_.key("samples");
    json_.begin_array();
    for (const Run& run : profile.runs) stack(run);
    json_.end_array();
    json_.key("weights");
    json_.begin_array();
    for (const Run& run : profile.runs) json_.seconds(run.ns);
    json_.end_array();
    json_.end_object();
  }

  void stack(const Run& run) {
    leaf_first_.clear();
    StackId node = run.stack;
    for (std::uint32_t depth = index_.depth(node); depth > 0; --depth) {
      leaf_first_.push_back(number(node));
      node = index_.caller(node);
    }
    if (run.root_missing) leaf_first_.push_back(0);
    json_.begin_array();
    for (auto it = leaf_first_.rbegin(); it != leaf_first_.rend(); ++it) json_.number(*it);
    json_.end_array();
  }

  const Attribution& attribution_;
  const Tables& tables_;
  const StackIndex& index_;
  std::vector<Profile> profiles_;
  std::vector<std::size_t> profile_of_thread_;
  std::vector<std::uint32_t> numbers_;     // by function
  std::vector<std::uint32_t> leaf_first_;  // scratch
  JsonWriter json_;
};

}  // namespace

Result<void> write_speedscope(const Analysis& analysis, const std::vector<CompileIndex>& compiles,
                              ByteSink& sink) {
  Speedscope speedscope(analysis, sink);
  CompileFilter filter(analysis.attribution(), compiles);
  analysis.attribution().for_each([&](const AttributedSample& at) {
    if (filter.wants(at)) speedscope.add(at);
  });
  return speedscope.finish();
}

Result<void> export_speedscope(const ExportRequest& request) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, request.open());
  return write_speedscope(request.analysis, request.compiles, *sink);
}

}  // namespace dynprof
