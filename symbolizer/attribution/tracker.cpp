#include "symbolizer/attribution/tracker.h"

#include <algorithm>
#include <utility>

namespace dynprof {
namespace {

// Attempts count from 0 one by one, so an attempt never sampled still was. A number beyond this is
// not torch's and gets no such rows.
constexpr std::int32_t kMaxAttempts = 64;

// A sample that may not show all that is on its stack.
bool is_blind(const Sample& sample) {
  return (sample.flags & (kSampleTruncated | kSampleFrameFault | kSampleMarkersCut)) != 0;
}

// Whether frames of a compile are on the stack.
bool is_compiling(const StackPhase& stack) {
  return stack.compile_entry || stack.backward_work || stack.attempt_entry;
}

// By the names of its frames another kind of compile is further in than the innermost marker.
bool contradicts(bool backward, const StackPhase& stack) {
  return backward ? stack.compile_entry : stack.backward_work;
}

}  // namespace

CompileTracker::CompileTracker(const Tables& tables, const std::vector<TorchReading>& torch)
    : tables_(tables), torch_(torch) {
  // torch names a capture of compiled autograd also while what was captured runs: no compile.
  for (TorchReading& reading : torch_) {
    if (reading.id.frame < 0 && !reading.in_capture && !reading.phases_cut) reading.speaks = false;
  }
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
  const TorchReading& torch = torch_[sample.context];
  if ((sample.flags & kSampleNoPython) && !torch.speaks) {
    thread.pending = !thread.open.empty();
    thread.repeatable = thread.repeatable && !thread.pending;
    return {.verdict = thread.pending ? Verdict::kPending : Verdict::kNone};
  }
  if (is_inherited(thread, sample, stack)) return {};
  if (thread.repeatable && sample.flags == 0 && sample.context == thread.last_context) {
    for (Episode& episode : thread.open) compiles_[episode.current].last_ns = sample.time_ns;
    if (torch.speaks) compare(thread.frames, stack);
    Decision decision = decide(thread, static_cast<int>(thread.open.size()) - 1, stack, torch);
    decision.call = thread.call;
    return decision;
  }

  Reading reading = read_markers(thread, sample, stack);
  if (torch.speaks) listen(thread, reading, sample, stack, torch);
  bool blind = is_blind(sample);
  bool hidden = reading.inner < 0 && !reading.unknown && is_compiling(stack);
  bool continues = std::any_of(reading.now.begin(), reading.now.end(),
                               [](const Episode& episode) { return !episode.attempts.empty(); });
  bool had_open = !thread.open.empty();
  // A marker frame that is there by name but in no marker: found too short a time ago to be read.
  if (blind || hidden) keep_open(thread, reading, nullptr);
  keep_around(thread, reading, sample, stack, torch);
  for (std::size_t i = 0; i < reading.now.size(); ++i) {
    // Those kept without being seen are behind the ones that were.
    if (static_cast<int>(i) <= reading.inner) touch(reading.now[i], sample);
  }
  std::swap(thread.open, reading.now);
  thread.seen = true;
  thread.last_context = sample.context;
  thread.repeatable = sample.flags == 0 && reading.lasting && !hidden && !reading.unknown &&
                      static_cast<std::size_t>(reading.inner) + 1 == thread.open.size();

  Decision decision;
  if (reading.unknown || hidden) {
    decision.verdict = Verdict::kUnattributed;
  } else if (reading.inner < 0 && blind && (had_open || stack.phase != Phase::kRuntime)) {
    decision.verdict = Verdict::kUnattributed;
  } else {
    decision = decide(thread, reading.inner, stack, torch);
  }
  decision.call = thread.call = reading.call;
  if (thread.pending && !blind && !hidden && !reading.unknown) {
    thread.pending = false;
    decision.settles = continues;
  }
  return decision;
}

void CompileTracker::compare(const FramesWord& frames, const StackPhase& stack) {
  if (!frames.id_known || contradicts(frames.backward, stack)) return;
  ++agreement_.both;
  if (frames.differs) ++agreement_.differ;
}

// T says which compile is innermost. Where the frames say the same, their episode is it: it knows
// one call from the next.
void CompileTracker::listen(ThreadState& thread, Reading& reading, const Sample& sample,
                            const StackPhase& stack, const TorchReading& torch) {
  thread.frames = {};
  Episode* inner = reading.inner >= 0 && !reading.unknown
                       ? &reading.now[static_cast<std::size_t>(reading.inner)]
                       : nullptr;
  // The frame of a compile inside another one is there a moment before torch has its id: until then
  // T still says the outer one.
  auto is_outer = [&](const Episode& outer) { return outer.id == torch.id; };
  bool is_late = inner != nullptr && inner->id != torch.id &&
                 (std::any_of(reading.now.begin(), reading.now.begin() + reading.inner, is_outer) ||
                  std::any_of(thread.open.begin(), thread.open.end(), [&](const Episode& outer) {
                    return outer.awaits_frames() && is_outer(outer);
                  }));
  if (is_late) return;
  if (inner != nullptr) {
    bool attempt_differs =
        reading.attempt >= 0 && torch.attempt >= 0 && reading.attempt != torch.attempt;
    thread.frames = {.id_known = true,
                     .backward = inner->kind == CompileKind::kBackward,
                     .differs = inner->id != torch.id || attempt_differs};
    compare(thread.frames, stack);
  }
  reading.unknown = false;
  if (inner != nullptr && inner->id == torch.id && (!torch.kind || *torch.kind == inner->kind)) {
    if (torch.attempt >= 0) inner->attempt = torch.attempt;
    if (inner->root_name == 0) inner->root_name = torch.root_name;
    return;
  }
  enter_by_torch(thread, reading, sample, stack, torch);
}

void CompileTracker::enter_by_torch(ThreadState& thread, Reading& reading, const Sample& sample,
                                    const StackPhase& stack, const TorchReading& torch) {
  auto is_it = [&](const Episode& episode) {
    bool other_root =
        episode.root_name != 0 && torch.root_name != 0 && (episode.root_name != torch.root_name);
    bool kind_fits = !torch.kind || *torch.kind == episode.kind || episode.kind_guessed;
    return episode.id == torch.id && kind_fits && !other_root;
  };
  auto seen = std::find_if(reading.now.rbegin(), reading.now.rend(), is_it);
  if (seen != reading.now.rend()) {
    // The frames show it, and another further in that T does not know of.
    reading.now.erase(seen.base(), reading.now.end());
    reading.inner = static_cast<int>(reading.now.size()) - 1;
    if (torch.attempt >= 0) reading.now.back().attempt = torch.attempt;
    return;
  }
  Episode episode;
  auto known = std::find_if(thread.open.rbegin(), thread.open.rend(), is_it);
  if (known != thread.open.rend()) {
    episode = *known;
    if (episode.kind_guessed && torch.kind) set_kind(episode, *torch.kind);
  } else {
    // An id alone, without a phase or a frame of torch, is there a moment before the compile begins.
    const bool no_phase = tables_.contexts[sample.context].torch.phases.empty();
    if (torch.asked && no_phase && stack.phase == Phase::kRuntime) return;
    // Without a phase to tell: `_compile` is no part of an export.
    CompileKind kind = stack.backward_entry  ? CompileKind::kBackward
                       : stack.compile_entry ? CompileKind::kForward
                                             : CompileKind::kExport;
    episode = new_episode(thread, sample, torch.id, torch.kind.value_or(kind));
    episode.from_torch = true;
    episode.kind_guessed = !torch.kind && !stack.backward_entry && !stack.compile_entry;
  }
  if (episode.root_depth < 0) {
    episode.root_name = torch.root_name;
    episode.root_depth = torch.root_depth;
  }
  if (torch.attempt >= 0) episode.attempt = torch.attempt;
  reading.inner += 1;
  reading.now.insert(reading.now.begin() + reading.inner, std::move(episode));
}

// Of one that was first seen between the moment when torch set the id and the one when it opened the phase.
void CompileTracker::set_kind(Episode& episode, CompileKind kind) {
  episode.kind = kind;
  episode.kind_guessed = false;
  for (const auto& [attempt, index] : episode.attempts) compiles_[index].kind = kind;
}

// Compiles that only T knows, around the one it says is innermost: open while their phase is.
void CompileTracker::keep_around(ThreadState& thread, Reading& reading, const Sample& sample,
                                 const StackPhase& stack, const TorchReading& torch) {
  const std::vector<StringId>& phases = tables_.contexts[sample.context].torch.phases;
  for (const Episode& episode : thread.open) {
    if (!episode.awaits_frames()) continue;
    auto depth = static_cast<std::size_t>(episode.root_depth);
    bool open = torch.asked ? episode.root_depth >= 0 && depth < phases.size() &&
                                  phases[depth] == episode.root_name
                            : stack.phase != Phase::kRuntime;
    if (open && !reading.shows(episode)) reading.now.push_back(episode);
  }
}

// A process that was forked inside a compile (to start g++, say) has that compile's frames on its
// stack until it execs: they are its parent's, not a compile of its own. In its first moment neither markers nor
// thread-locals are read yet: then the frames alone show it.
bool CompileTracker::is_inherited(const ThreadState& thread, const Sample& sample,
                                  const StackPhase& stack) const {
  auto parent = parents_.find(tables_.threads[sample.thread].pid);
  if (parent == parents_.end()) return false;
  auto rows = rows_of_process_.find(parent->second);
  if (rows == rows_of_process_.end()) return false;
  const std::vector<Marker>& markers = tables_.contexts[sample.context].markers;
  auto inner = std::find_if(markers.rbegin(), markers.rend(), [](const Marker& marker) {
    return marker.kind != MarkerKind::kAttempt;
  });
  const TorchReading& torch = torch_[sample.context];
  bool has_marker = inner != markers.rend();
  const bool known = has_marker || torch.speaks;
  if (!known && (thread.seen || !is_compiling(stack))) return false;
  TraceId id =
      has_marker ? TraceId{inner->autograd_id, inner->frame_id, inner->compile_id} : torch.id;
  return std::any_of(rows->second.begin(), rows->second.end(), [&](std::size_t row) {
    const std::vector<Episode>& open = threads_[row].open;
    return std::any_of(open.begin(), open.end(), [&](const Episode& episode) {
      return !known || ((!has_marker || episode.instance == inner->instance) && episode.id == id);
    });
  });
}

Decision CompileTracker::decide(ThreadState& thread, int inner, const StackPhase& stack,
                                const TorchReading& torch) {
  if (inner < 0) {
    return {.verdict = is_compiling(stack) ? Verdict::kUnattributed : Verdict::kNone};
  }
  const Episode& episode = thread.open[static_cast<std::size_t>(inner)];
  if (!torch.speaks && contradicts(episode.kind == CompileKind::kBackward, stack)) {
    return {.verdict = Verdict::kUnattributed};
  }
  ++compiles_[episode.current].samples;
  return {.verdict = Verdict::kCompile,
          .compile = episode.current,
          .origin = torch.speaks ? Origin::kThreadLocals : Origin::kFrames};
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
          reading.attempt = -1;
        }
        break;
      case MarkerKind::kAttempt:
        // Of the nearest compile towards the root. A backward has no attempts of its own: there it
        // is a compile whose id is elsewhere (torch.export), as it is without any compile.
        if (reading.inner < 0 ||
            reading.now[static_cast<std::size_t>(reading.inner)].kind == CompileKind::kBackward) {
          reading.unknown = true;
          reading.call = marker.instance;
        } else if (!reading.unknown && marker.readable && marker.attempt >= 0) {
          reading.now[static_cast<std::size_t>(reading.inner)].attempt = marker.attempt;
          reading.attempt = marker.attempt;
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
          reading.attempt = marker.attempt;
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
  auto known = std::find_if(thread.open.begin(), thread.open.end(), [&](const Episode& episode) {
    return episode.is(marker, id, kind) ||
           (episode.awaits_frames() && episode.id == id && episode.kind == kind);
  });
  Episode episode = known != thread.open.end() ? *known : new_episode(thread, sample, id, kind);
  episode.instance = marker.instance;
  if (marker.user_code != 0) episode.user_code = marker.user_code;
  // Before any that is kept without being seen.
  int place = reading.inner + 1;
  reading.now.insert(reading.now.begin() + place, std::move(episode));
  return place;
}

CompileTracker::Episode CompileTracker::new_episode(const ThreadState& thread, const Sample& sample,
                                                    const TraceId& id, CompileKind kind) {
  std::int32_t pid = tables_.threads[sample.thread].pid;
  auto began = began_with_us_.find(pid);
  Episode episode;
  episode.number = episodes_++;
  episode.id = id;
  episode.kind = kind;
  // A backward compiles after its forward has: seen that, we were there for this. Autograd's
  // threads often show a backward first.
  bool forward_seen =
      kind == CompileKind::kBackward && seen_.contains({pid, CompileKind::kForward, id});
  seen_.insert({pid, kind, id});
  episode.began_before =
      !thread.seen && !forward_seen && (began == began_with_us_.end() || !began->second);
  return episode;
}

// Episodes of the thread that this sample does not end, though it does not show them either: all,
// or those of one marker.
void CompileTracker::keep_open(ThreadState& thread, Reading& reading, const Marker* only_of) {
  for (const Episode& episode : thread.open) {
    if (only_of && episode.instance != only_of->instance) continue;
    if (!reading.shows(episode)) reading.now.push_back(episode);
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
                              .thread = sample.thread,
                              .pid = tables_.threads[sample.thread].pid,
                              .user_code = episode.user_code,
                              .began_before = episode.began_before,
                              .episode = episode.number,
                              .noticed_ns = sample.time_ns});
  return static_cast<CompileIndex>(compiles_.size() - 1);
}

std::vector<Compile> CompileTracker::finish() {
  for (const ThreadState& thread : threads_) {
    if (thread.pending) continue;  // the last samples show nothing of it
    for (const Episode& episode : thread.open) {
      if (episode.current != kNoCompile) compiles_[episode.current].open_at_end = true;
    }
  }
  return std::move(compiles_);
}

}  // namespace dynprof
