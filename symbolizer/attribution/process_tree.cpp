#include "symbolizer/attribution/process_tree.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "symbolizer/attribution/process_command.h"
#include "symbolizer/attribution/process_peaks.h"
#include "symbolizer/base/enum_text.h"
#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

// Images of one process that are kept: an exec loop has no end.
constexpr std::size_t kMaxImages = 64;
// Compiles of one process that are looked through for each child.
constexpr std::size_t kMaxCompilesOpen = 64;

class LifeReader {
 public:
  LifeReader(const Recording& recording, std::vector<ChildProcess>& out)
      : meta_(recording.meta()), end_ns_(recording.trailer().end_ns), out_(out) {}

  void read(const Tables& tables) {
    for (const ProcessLife& life : tables.lives) {
      last_ns_ = std::max(last_ns_, life.time_ns);
      add(life);
    }
    for (ChildProcess& child : out_) {
      if (child.ended) continue;
      child.end_ns = std::max({end_ns_, last_ns_, child.begin_ns});
      if (!child.images.empty()) child.images.back().end_ns = child.end_ns;
    }
    for (ChildProcess& child : out_)
      child.parent = child.parent < out_.size() ? child.parent : kNoChild;
  }

 private:
  void add(const ProcessLife& life) {
    switch (life.kind) {
      case LifeKind::kFork:
        begin(life, true);
        break;
      case LifeKind::kThere:
        if (life.parent_pid == 0) return;  // a target
        begin(life, false);
        at_attach_[life.pid] = life.cpu_ns;
        break;
      case LifeKind::kExec:
        exec(life);
        break;
      case LifeKind::kExit:
        exit(life);
        break;
      case LifeKind::kReaped:
        reaped(life);
        break;
      case LifeKind::kLeft:
        if (ChildProcess* child = find(life.pid)) set_cpu(*child, life.cpu_ns, false);
        break;
    }
  }

  ChildProcess* find(std::int32_t pid) {
    auto at = alive_.find(pid);
    return at == alive_.end() ? nullptr : &out_[at->second];
  }

  void begin(const ProcessLife& life, bool seen) {
    at_attach_.erase(life.pid);
    ChildProcess child;
    child.pid = life.pid;
    child.parent_pid = life.parent_pid;
    child.parent_tid = life.parent_tid;
    child.begin_ns = seen ? life.time_ns : meta_.start_ns;
    child.begin_known = seen;
    auto parent = alive_.find(life.parent_pid);
    if (parent != alive_.end()) child.parent = parent->second;
    child.images.push_back({.begin_ns = child.begin_ns,
                            .comm = life.comm,
                            .exe = life.exe,
                            .command_line = life.command_line,
                            .command_bytes = life.command_bytes});
    if (seen && child.parent != kNoChild) {
      const ProcessImage& like = out_[child.parent].images.back();
      child.images.back().command_line = like.command_line;
      child.images.back().command_bytes = like.command_bytes;
    }
    alive_[life.pid] = static_cast<ProcessIndex>(out_.size());
    out_.push_back(std::move(child));
  }

  void exec(const ProcessLife& life) {
    ChildProcess* child = find(life.pid);
    if (child == nullptr) return;  // a target, or its fork is lost: counted where it was lost
    child->images.back().end_ns = life.time_ns;
    if (child->images.size() == kMaxImages) child->images.pop_back();
    child->images.push_back({.begin_ns = life.time_ns,
                             .cpu_ns = life.cpu_ns,
                             .comm = life.comm,
                             .exe = life.exe,
                             .command_line = life.command_line,
                             .command_bytes = life.command_bytes});
  }

  void exit(const ProcessLife& life) {
    auto at = alive_.find(life.pid);
    if (at == alive_.end()) return;
    ChildProcess& child = out_[at->second];
    child.ended = true;
    child.end_ns = std::max(life.time_ns, child.begin_ns);
    child.exit_status = life.exit_code;
    child.images.back().end_ns = child.end_ns;
    set_cpu(child, life.cpu_ns, false);
    unreaped_[life.pid] = at->second;
    alive_.erase(at);
  }

  void reaped(const ProcessLife& life) {
    auto at = unreaped_.find(life.pid);
    if (at == unreaped_.end()) return;
    set_cpu(out_[at->second], life.cpu_ns, true);
    unreaped_.erase(at);
  }

  void set_cpu(ChildProcess& child, std::uint64_t cpu_ns, bool final) {
    auto before = at_attach_.find(child.pid);
    const std::uint64_t base = child.begin_known || before == at_attach_.end() ? 0 : before->second;
    child.cpu_ns = cpu_ns - std::min(cpu_ns, base);
    child.cpu_known = true;
    child.cpu_final = final;
  }

  const Meta& meta_;
  std::uint64_t end_ns_;
  std::uint64_t last_ns_ = 0;
  std::vector<ChildProcess>& out_;
  std::unordered_map<std::int32_t, ProcessIndex> alive_, unreaped_;
  std::unordered_map<std::int32_t, std::uint64_t> at_attach_;  // CPU time used before
};

}  // namespace

const char* join_rule_text(JoinRule rule) {
  static constexpr const char* kTexts[] = {"none",        "compile worker", "parent process",
                                           "source file", "forking thread", "only open compile",
                                           "shared"};
  return enum_text<JoinRule::kShared>(kTexts, rule, "none");
}

ProcessTree::ProcessTree(const Attribution& attribution)
    : attribution_(attribution),
      generated_(attribution),
      tables_(attribution.recording().tables()),
      known_(!tables_.lives.empty()),
      of_(attribution.compiles().size()),
      cpu_(attribution.compiles().size()) {
  if (!known_) return;
  LifeReader(attribution.recording(), all_).read(tables_);
  target_peaks_ = add_memory_peaks(tables_, all_);
  for (ProcessIndex i = 0; i < all_.size(); ++i) children_of_[all_[i].parent_pid].push_back(i);
  std::map<std::int32_t, std::vector<CompileIndex>> by_pid;
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
    const Compile& compile = attribution.compiles()[i];
    if (compile.thread != kNoThread && compile.first_ns != 0) by_pid[compile.pid].push_back(i);
  }
  for (auto& [pid, list] : by_pid) {
    std::sort(list.begin(), list.end(), [&](CompileIndex a, CompileIndex b) {
      return attribution.compiles()[a].first_ns < attribution.compiles()[b].first_ns;
    });
    compiles_of_.emplace_back(pid, std::move(list));
  }
  join();
  count_samples();
  add_up();
}

std::vector<CompileIndex> ProcessTree::open_at(std::int32_t pid, std::uint64_t time_ns) const {
  auto list =
      std::lower_bound(compiles_of_.begin(), compiles_of_.end(), pid,
                       [](const auto& entry, std::int32_t key) { return entry.first < key; });
  if (list == compiles_of_.end() || list->first != pid) return {};
  const std::vector<Compile>& compiles = attribution_.compiles();
  auto after = std::upper_bound(
      list->second.begin(), list->second.end(), time_ns,
      [&](std::uint64_t time, CompileIndex i) { return time < compiles[i].first_ns; });
  std::vector<CompileIndex> open;
  std::size_t steps = 0;
  // The one that began last is the innermost of its thread.
  while (after != list->second.begin() && steps++ < kMaxCompilesOpen) {
    const CompileIndex i = *--after;
    if (compiles[i].last_ns < time_ns) continue;
    const std::int32_t tid = tables_.threads[compiles[i].thread].tid;
    const bool known = std::any_of(open.begin(), open.end(), [&](CompileIndex other) {
      return tables_.threads[compiles[other].thread].tid == tid;
    });
    if (!known) open.push_back(i);
  }
  return open;
}

bool ProcessTree::join_by_thread(ChildProcess& child) {
  const std::vector<CompileIndex> open = open_at(child.parent_pid, child.begin_ns);
  for (CompileIndex i : open) {
    if (tables_.threads[attribution_.compiles()[i].thread].tid != child.parent_tid) continue;
    child.rule = JoinRule::kForkingThread;
    child.compile = i;
    return true;
  }
  if (open.empty() || !child.begin_known) return false;
  // A thread of a pool forked it: for whoever waits.
  child.rule = open.size() == 1 ? JoinRule::kOnlyCompile : JoinRule::kShared;
  if (open.size() == 1) child.compile = open.front();
  return true;
}

void ProcessTree::join_one(ChildProcess& child) {
  if (worker_parent(tables_.strings[child.images.back().command_line]) != 0) {
    child.worker = true;
    child.rule = JoinRule::kWorker;
    return;
  }
  // What a process compiles by itself is its own.
  const bool parent_compiles = !open_at(child.parent_pid, child.begin_ns).empty();
  if (child.parent != kNoChild && !parent_compiles) {
    const ChildProcess& parent = all_[child.parent];
    if (parent.worker) {
      const auto open = open_at(worker_parent(tables_.strings[parent.images.back().command_line]),
                                child.begin_ns);
      if (open.empty()) return;
      child.rule = open.size() == 1 ? JoinRule::kWorker : JoinRule::kShared;
      if (open.size() == 1) child.compile = open.front();
      return;
    }
    if (parent.rule != JoinRule::kNone) {
      child.rule = parent.rule == JoinRule::kShared ? JoinRule::kShared : JoinRule::kParent;
      child.compile = parent.compile;
      return;
    }
  }
  if (!join_by_source(child)) join_by_thread(child);
}

void ProcessTree::join() {
  // By begin: a parent comes before its children.
  for (ChildProcess& child : all_) join_one(child);
  for (ProcessIndex i = 0; i < all_.size(); ++i)
    if (all_[i].compile != kNoCompile) of_[all_[i].compile].push_back(i);
}

bool ProcessTree::join_by_source(ChildProcess& child) {
  // A process that is to be another program says more then.
  for (const ProcessImage& image : child.images) {
    for (std::string_view source : sources_of(tables_.strings[image.command_line])) {
      const std::string_view stem = base_name(source).substr(0, base_name(source).find('.'));
      if (stem.size() < 8) continue;  // Inductor's are 52: a hash
      CompileIndex found = kNoCompile;
      bool several = false;
      for (CompileIndex i = 0; i < attribution_.compiles().size(); ++i) {
        const Compile& compile = attribution_.compiles()[i];
        if (compile.first_ns > child.begin_ns || compile.last_ns < child.begin_ns) continue;
        for (std::uint32_t file : generated_.of(i)) {
          if (generated_.files()[file].origin.find(stem) == std::string::npos) continue;
          several = several || (found != kNoCompile && found != i);
          found = i;
        }
      }
      if (found == kNoCompile || several) continue;
      child.rule = JoinRule::kSource;
      child.compile = found;
      return true;
    }
  }
  return false;
}

void ProcessTree::count_samples() {
  if (all_.empty()) return;
  std::unordered_map<std::int32_t, std::vector<ProcessIndex>> by_pid;
  for (ProcessIndex i = 0; i < all_.size(); ++i) by_pid[all_[i].pid].push_back(i);
  std::map<std::pair<CompileIndex, ProcessIndex>, std::uint64_t> shares;
  attribution_.for_each([&](const AttributedSample& at) {
    const Sample& sample = at.sample;
    const Thread& thread = tables_.threads[sample.thread];
    if (at.compile != kNoCompile) busy_[{thread.pid, thread.tid}].push_back(sample.time_ns);
    auto known = by_pid.find(thread.pid);
    if (known == by_pid.end()) return;
    for (ProcessIndex i : known->second) {
      ChildProcess& child = all_[i];
      if (sample.time_ns < child.begin_ns || sample.time_ns > child.end_ns) continue;
      ++child.samples;
      if (!child.worker) break;
      const auto open =
          open_at(worker_parent(tables_.strings[child.images.back().command_line]), sample.time_ns);
      if (open.size() == 1) shares[{open.front(), i}] += at.cpu_ns;
      if (open.size() > 1) shared_ns_ += at.cpu_ns;
      break;
    }
  });
  for (auto [key, ns] : shares) shares_.push_back({key.first, key.second, ns});
}

void ProcessTree::add_up() {
  for (const WorkerShare& share : shares_) {
    cpu_[share.compile] += share.cpu_ns;
    joined_ns_ += share.cpu_ns;
  }
  for (const ChildProcess& child : all_) {
    if (child.worker) continue;
    if (child.compile != kNoCompile) {
      cpu_[child.compile] += child.cpu_ns;
      joined_ns_ += child.cpu_ns;
    } else {
      (child.rule == JoinRule::kShared ? shared_ns_ : other_ns_) += child.cpu_ns;
    }
  }
}

std::uint64_t ProcessTree::overlap_ns(const ChildProcess& child, Interval compile,
                                      const std::vector<Interval>& off_cpu) {
  const std::uint64_t begin = std::max(child.begin_ns, compile.first);
  const std::uint64_t end = std::min(child.end_ns, compile.second);
  std::uint64_t sum = 0;
  for (const Interval& off : off_cpu) {
    const std::uint64_t from = std::max(begin, off.first), to = std::min(end, off.second);
    if (from < to) sum += to - from;
  }
  return sum;
}

std::vector<Interval> ProcessTree::off_cpu(CompileIndex index) const {
  const Compile& compile = attribution_.compiles()[index];
  const std::uint64_t period = attribution_.recording().meta().period_ns;
  std::vector<Interval> gaps;
  if (compile.first_ns == 0 || compile.thread == kNoThread) return gaps;
  bool recorded = false;
  for (const Wait& wait : tables_.waits) {
    if (wait.thread != compile.thread) continue;
    recorded = true;
    if (wait.count != 1 || wait.kind == WaitKind::kNone || wait.kind == WaitKind::kPreempted)
      continue;
    const std::uint64_t end = wait.begin_ns + wait.length_ns - wait.runnable_ns;
    if (wait.begin_ns < compile.last_ns && end > compile.first_ns)
      gaps.emplace_back(std::max(wait.begin_ns, compile.first_ns), std::min(end, compile.last_ns));
  }
  if (recorded) return gaps;
  std::uint64_t last = compile.first_ns;
  auto gap = [&](std::uint64_t next) {
    // A sample stands for the period around it.
    if (next > last && next - last > 2 * period)
      gaps.emplace_back(last + period / 2, next - period / 2);
    last = std::max(last, next);
  };
  const Thread& thread = tables_.threads[compile.thread];
  if (auto busy = busy_.find({thread.pid, thread.tid}); busy != busy_.end()) {
    auto at = std::lower_bound(busy->second.begin(), busy->second.end(), compile.first_ns);
    for (; at != busy->second.end() && *at < compile.last_ns; ++at) gap(*at);
  }
  gap(compile.last_ns);
  return gaps;
}

const ChildProcess* ProcessTree::waited_for(std::int32_t pid, std::int32_t tid,
                                            const Wait& wait) const {
  if (wait.count != 1 || (wait.kind != WaitKind::kChild && wait.kind != WaitKind::kPipe))
    return nullptr;
  const auto at = children_of_.find(pid);
  if (at == children_of_.end()) return nullptr;
  const ChildProcess* found = nullptr;
  for (ProcessIndex i : at->second) {
    const ChildProcess& child = all_[i];
    if (child.begin_ns >= wait.end_ns()) break;        // they are by their begin
    if (child.worker || !child.begin_known) continue;  // of a pool, or always there
    if (child.parent_tid != 0 && child.parent_tid != tid) continue;
    const std::uint64_t begin = std::max(child.begin_ns, wait.begin_ns);
    const std::uint64_t end = std::min(child.end_ns, wait.end_ns());
    if (end <= begin || 2 * (end - begin) < wait.span_ns) continue;
    found = &child;
  }
  return found;
}

std::string ProcessTree::title(const ChildProcess& child, const ProcessImage& image) const {
  std::string text = command_title(tables_.strings[image.command_line], tables_.strings[image.exe],
                                   tables_.strings[image.comm]);
  return text.empty() ? "process " + std::to_string(child.pid) : text;
}

std::string ProcessTree::title(const ChildProcess& child) const {
  return title(child, child.images.back());
}

std::vector<std::string> ProcessTree::arguments(const ProcessImage& image,
                                                std::size_t limit) const {
  return shortened_arguments(tables_.strings[image.command_line], limit);
}

}  // namespace dynprof
