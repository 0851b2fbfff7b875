#include "symbolizer/attribution/tracker.h"

#include <algorithm>
#include <numeric>

namespace dynprof {
namespace {

// Attempts count from 0 one by one, so an attempt never sampled still was. A number beyond this is
// not torch's and gets no such rows.
constexpr std::int32_t kMaxAttempts = 64;

bool is_valid(const TraceId& id) {
  bool has_frame = id.frame >= 0 && id.compile >= 0;
  bool has_no_frame = id.frame < 0 && id.compile < 0;
  return has_frame || (has_no_frame && id.autograd >= 0);
}

// A sample that may not show all that is on its stack.
bool is_blind(const Sample& sample) {
  return (sample.flags & (kSampleTruncated | kSampleFrameFault | kSampleMarkersCut)) != 0;
}

}  // namespace

CompileTracker::CompileTracker(const Tables& tables) : tables_(tables) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> rows;
  for (const Thread& thread : tables.threads) {
    rows_.push_back(rows.try_emplace({thread.pid, thread.tid}, rows.size()).first->second);
  }
  threads_.resize(rows.size());
  for (const auto& [ids, row] : rows) rows_of_process_[ids.first].push_back(row);
  for (const Process& process : tables.processes) {
    began_with_us_.try_emplace(process.pid, process.start_ns != 0 || process.no_compile_at_start);
    if (process.parent_pid != 0) parents_[process.pid] = process.parent_pid;
  }
}

Decision CompileTracker::add(const Sample& sample, const StackPhase& stack) {
  ThreadState& thread = threads_[rows_[sample.thread]];
  if (sample.flags & kSampleNoPython) {
    thread.pending = !thread.open.empty();
    thread.repeatable = thread.repeatable && !thread.pending;
    return {thread.pending ? Verdict::kPending : Verdict::kNone, kNoCompile, {}};
  }
  if (is_inherited(sample)) return {Verdict::kNone, kNoCompile, {}};
  if (thread.repeatable && sample.flags == 0 && sample.context == thread.last_context) {
    for (Episode& episode : thread.open) compiles_[episode.current].last_ns = sample.time_ns;
    return decide(thread, static_cast<int>(thread.open.size()) - 1, stack);
  }

  Reading reading = read_markers(thread, sample, stack);
  bool blind = is_blind(sample);
  bool hidden = reading.inner < 0 && !reading.unknown &&
                (stack.compile_entry || stack.backward_work || stack.attempt_entry);
  bool continues = std::any_of(reading.now.begin(), reading.now.end(),
                               [](const Episode& episode) { return !episode.attempts.empty(); });
  bool had_open = !thread.open.empty();
  // A marker frame that is there by name but in no marker: found too short a time ago to be read.
  if (blind || hidden) keep_open(thread, reading, nullptr);
  for (std::size_t i = 0; i < reading.now.size(); ++i) {
    // Those kept without being seen are behind the ones that were.
    if (static_cast<int>(i) <= reading.inner) touch(reading.now[i], sample);
  }
  std::swap(thread.open, reading.now);
  thread.seen = true;
  thread.last_context = sample.context;
  thread.repeatable = sample.flags == 0 && reading.lasting && !hidden && !reading.unknown &&
                      static_cast<std::size_t>(reading.inner + 1) == thread.open.size();

  Decision decision;
  if (reading.unknown || hidden) {
    decision.verdict = Verdict::kUnattributed;
  } else if (reading.inner < 0 && blind && (had_open || stack.phase != Phase::kRuntime)) {
    decision.verdict = Verdict::kUnattributed;
  } else {
    decision = decide(thread, reading.inner, stack);
  }
  if (thread.pending && !blind && !hidden && !reading.unknown) {
    thread.pending = false;
    decision.settles = continues;
  }
  return decision;
}

// A process that was forked inside a compile (to start g++, say) has that compile's frames on its
// stack until it execs: they are its parent's, not a compile of its own.
bool CompileTracker::is_inherited(const Sample& sample) const {
  auto parent = parents_.find(tables_.threads[sample.thread].pid);
  if (sample.context == 0 || parent == parents_.end()) return false;
  auto rows = rows_of_process_.find(parent->second);
  if (rows == rows_of_process_.end()) return false;
  const std::vector<Marker>& markers = tables_.contexts[sample.context].markers;
  auto inner = std::find_if(markers.rbegin(), markers.rend(), [](const Marker& marker) {
    return marker.kind != MarkerKind::kAttempt;
  });
  if (inner == markers.rend()) return false;
  TraceId id{inner->autograd_id, inner->frame_id, inner->compile_id};
  return std::any_of(rows->second.begin(), rows->second.end(), [&](std::size_t row) {
    const std::vector<Episode>& open = threads_[row].open;
    return std::any_of(open.begin(), open.end(), [&](const Episode& episode) {
      return episode.instance == inner->instance && episode.id == id;
    });
  });
}

Decision CompileTracker::decide(ThreadState& thread, int inner, const StackPhase& stack) {
  if (inner < 0) {
    bool hidden = stack.compile_entry || stack.backward_work || stack.attempt_entry;
    return {hidden ? Verdict::kUnattributed : Verdict::kNone, kNoCompile, {}};
  }
  const Episode& episode = thread.open[static_cast<std::size_t>(inner)];
  bool backward = episode.kind == CompileKind::kBackward;
  // By name another kind of compile is further in than the innermost marker.
  if (backward ? stack.compile_entry : stack.backward_work) {
    return {Verdict::kUnattributed, kNoCompile, {}};
  }
  ++compiles_[episode.current].samples;
  return {Verdict::kCompile, episode.current, {}};
}

CompileTracker::Reading CompileTracker::read_markers(ThreadState& thread, const Sample& sample,
                                                     const StackPhase& stack) {
  Reading reading;
  const std::vector<Marker>& markers = tables_.contexts[sample.context].markers;
  for (const Marker& marker : markers) {
    TraceId id{marker.autograd_id, marker.frame_id, marker.compile_id};
    bool readable = marker.readable && is_valid(id);
    bool last = &marker == &markers.back();
    switch (marker.kind) {
      case MarkerKind::kCompile:
        if (!readable) {
          reading.unknown = true;
          keep_open(thread, reading, &marker);
        } else {
          auto kind = id.frame < 0 ? CompileKind::kCompiledAutograd : CompileKind::kForward;
          reading.unknown = false;
          reading.inner = enter(thread, reading, sample, marker, id, kind);
        }
        break;
      case MarkerKind::kAttempt:
        // Of the nearest compile towards the root. A backward has no attempts of its own: there it
        // is a compile whose id is elsewhere (torch.export), as it is without any compile.
        if (reading.inner < 0 ||
            reading.now[static_cast<std::size_t>(reading.inner)].kind == CompileKind::kBackward) {
          reading.unknown = true;
        } else if (!reading.unknown && marker.readable && marker.attempt >= 0) {
          reading.now[static_cast<std::size_t>(reading.inner)].attempt = marker.attempt;
        }
        break;
      case MarkerKind::kBackward:
        reading.lasting = false;                // depends on the frames above it
        if (last && stack.backward_ran) break;  // compiled; now it runs
        if (!readable) {
          // Not set while there is nothing to compile: torch 2.6 to 2.12 run the backward in it.
          reading.unknown = reading.unknown || (last && stack.backward_work);
          keep_open(thread, reading, &marker);
        } else {
          reading.unknown = false;
          reading.inner = enter(thread, reading, sample, marker, id, CompileKind::kBackward);
          if (marker.attempt >= 0) {
            reading.now[static_cast<std::size_t>(reading.inner)].attempt = marker.attempt;
          }
        }
        break;
    }
  }
  return reading;
}

int CompileTracker::enter(ThreadState& thread, Reading& reading, const Sample& sample,
                          const Marker& marker, const TraceId& id, CompileKind kind) {
  auto known = std::find_if(thread.open.begin(), thread.open.end(),
                            [&](const Episode& episode) { return episode.is(marker, id, kind); });
  Episode episode;
  if (known != thread.open.end()) {
    episode = *known;
  } else {
    std::int32_t pid = tables_.threads[sample.thread].pid;
    auto began = began_with_us_.find(pid);
    episode.instance = marker.instance;
    episode.id = id;
    episode.kind = kind;
    episode.repeat = ++repeats_[{pid, kind, id}];
    // A backward compiles after its forward has: seen that, we were there for this. Autograd's
    // threads often show a backward first.
    bool forward_seen =
        kind == CompileKind::kBackward && repeats_.contains({pid, CompileKind::kForward, id});
    episode.began_before =
        !thread.seen && !forward_seen && (began == began_with_us_.end() || !began->second);
  }
  if (marker.user_code != 0) episode.user_code = marker.user_code;
  // Before any that is kept without being seen.
  int place = reading.inner + 1;
  reading.now.insert(reading.now.begin() + place, std::move(episode));
  return place;
}

// Episodes of the thread that this sample does not end, though it does not show them either: all,
// or those of one marker.
void CompileTracker::keep_open(ThreadState& thread, Reading& reading, const Marker* only_of) {
  for (const Episode& episode : thread.open) {
    if (only_of && episode.instance != only_of->instance) continue;
    bool there = std::any_of(reading.now.begin(), reading.now.end(), [&](const Episode& other) {
      return other.instance == episode.instance && other.id == episode.id &&
             other.kind == episode.kind;
    });
    if (!there) reading.now.push_back(episode);
  }
}

// The sample is inside the episode's present attempt, or in a compile nested there.
void CompileTracker::touch(Episode& episode, const Sample& sample) {
  auto find = [&](std::int32_t attempt) {
    return std::find_if(episode.attempts.begin(), episode.attempts.end(),
                        [&](const auto& known) { return known.first == attempt; });
  };
  auto present = find(episode.attempt);
  if (present == episode.attempts.end()) {
    // A backward carries its forward's attempt: the earlier ones never came to a backward.
    bool counts_up = episode.kind != CompileKind::kBackward && episode.attempt < kMaxAttempts;
    for (std::int32_t earlier = 0; counts_up && earlier < episode.attempt; ++earlier) {
      if (find(earlier) != episode.attempts.end()) continue;
      episode.attempts.emplace_back(earlier, add_compile(episode, sample, earlier));
    }
    CompileIndex index = add_compile(episode, sample, episode.attempt);
    compiles_[index].first_ns = sample.time_ns;
    episode.attempts.emplace_back(episode.attempt, index);
    present = episode.attempts.end() - 1;
    // Only the first thing seen of an episode can have begun before we came.
    episode.began_before = false;
  }
  episode.current = present->second;
  Compile& compile = compiles_[episode.current];
  compile.last_ns = sample.time_ns;
  if (compile.user_code == 0) compile.user_code = episode.user_code;
}

CompileIndex CompileTracker::add_compile(const Episode& episode, const Sample& sample,
                                         std::int32_t attempt) {
  compiles_.push_back(Compile{.id = episode.id,
                              .attempt = attempt,
                              .kind = episode.kind,
                              .repeat = episode.repeat,
                              .thread = sample.thread,
                              .user_code = episode.user_code,
                              .began_before = episode.began_before});
  noticed_ns_.push_back(sample.time_ns);
  return static_cast<CompileIndex>(compiles_.size() - 1);
}

std::vector<Compile> CompileTracker::finish(std::vector<CompileIndex>& renumbered) {
  for (const ThreadState& thread : threads_) {
    if (thread.pending) continue;  // the last samples show nothing of it
    for (const Episode& episode : thread.open) {
      if (episode.current != kNoCompile) compiles_[episode.current].open_at_end = true;
    }
  }
  // A backward is of the function its forward was compiled from: the last such before it.
  std::map<std::pair<std::int32_t, TraceId>, CodeId> user_codes;
  std::vector<CompileIndex> order(compiles_.size());
  std::iota(order.begin(), order.end(), CompileIndex{0});
  std::stable_sort(order.begin(), order.end(), [this](CompileIndex a, CompileIndex b) {
    return noticed_ns_[a] < noticed_ns_[b];
  });
  std::vector<Compile> compiles;
  compiles.reserve(order.size());
  renumbered.assign(order.size(), kNoCompile);
  for (CompileIndex old : order) {
    Compile& compile = compiles_[old];
    CodeId& user_code = user_codes[{tables_.threads[compile.thread].pid, compile.id}];
    if (compile.kind == CompileKind::kBackward) {
      if (compile.user_code == 0) compile.user_code = user_code;
    } else if (compile.user_code != 0) {
      user_code = compile.user_code;
    }
    renumbered[old] = static_cast<CompileIndex>(compiles.size());
    compiles.push_back(compile);
  }
  return compiles;
}

}  // namespace dynprof
