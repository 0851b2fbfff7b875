// What a recording holds, as types: the seam between user/ (which writes it while sampling) and
// symbolizer/ (a pure function from it to answers). Ids index the vectors of `Tables`; id 0 of
// strings and blobs is "", of codes and frames an unreadable one, of stacks the empty stack. Times are CLOCK_MONOTONIC nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/recording/chunk_list.h"
#include "symbolizer/recording/gpu_model.h"
#include "symbolizer/recording/ids.h"
#include "symbolizer/recording/life_model.h"
#include "symbolizer/recording/torch_model.h"
#include "symbolizer/recording/wait_model.h"

namespace dynprof {

// Why a frame has no name. Shown in angle brackets in place of one, never guessed around.
enum class Unreadable : std::uint8_t {
  kNo = 0,
  kStale = 1,        // the code object was freed or replaced before it could be read
  kFault = 2,        // its memory could not be read
  kBadLayout = 3,    // what was read is not a code object
  kTooLong = 4,      // a name or line table beyond our bounds
  kProcessGone = 5,  // the process ended before it could be read
  kNoSymbol = 6,     // native: no symbol covers the address
  kLost = 7,         // it was recorded, in a part of the file that is damaged
};
// "<stale code>" and such, ready to stand in place of a name; "" for kNo.
std::string_view unreadable_text(Unreadable reason);

// A Python code object, stored by content.
struct Code {
  StringId filename = 0;
  StringId name = 0;
  StringId qualname = 0;  // equals `name` on 3.10, which has no qualname
  std::int32_t first_line = 0;
  BlobId line_table = 0;     // co_linetable, as CPython stores it
  std::uint16_t python = 0;  // python_version(): the line table's format
  Unreadable unreadable = Unreadable::kNo;
  bool operator==(const Code&) const = default;
};

enum class FrameKind : std::uint8_t { kPython = 0, kNative = 1, kKernel = 2 };

// One place in code. Python: `code` and `unit`. Native and kernel: `symbol`, `object`, `offset`.
struct Frame {
  FrameKind kind = FrameKind::kPython;
  bool entry = false;  // Python: first frame of its eval-loop call, for merging with native ones
  CodeId code = 0;     // Python
  std::int32_t unit = -1;    // Python: instruction in 2-byte units, -1: not started
  StringId symbol = 0;       // native
  StringId object = 0;       // native: path of the mapped file, "[kernel]", "[vdso]"
  std::uint64_t offset = 0;  // native: offset in the file; kernel: the address
  // From SourcePlaces, when a recording is read; no part of what the frames chunk holds.
  bool inlined = false;             // native: inlined at `offset` into the frame that calls it
  StringId source_file = 0;         // native
  std::uint32_t source_line = 0;    // native: 0: not known
  std::uint32_t declared_line = 0;  // native: where its function begins, 0: not known
  bool operator==(const Frame&) const = default;
};

// The function a native or kernel frame lies in, found after the frame was written.
struct NativeName {
  FrameId frame = 0;
  StringId symbol = 0;
  bool operator==(const NativeName&) const = default;
};

// Where in its source a native frame is, from DWARF: the functions that the compiler inlined there,
// innermost first, and last the function that they were inlined into, whose name is that of the
// frame.
struct SourcePlace {
  StringId function = 0;  // 0 in the last
  StringId file = 0;
  std::uint32_t line = 0;      // 0: not known
  std::uint32_t declared = 0;  // line that the function is declared at, 0: not known
  bool operator==(const SourcePlace&) const = default;
};
inline constexpr std::size_t kMaxInlined = 32;
struct SourcePlaces {
  FrameId frame = 0;
  std::vector<SourcePlace> chain;  // 1 to kMaxInlined + 1
  bool operator==(const SourcePlaces&) const = default;
};

// Stacks are a tree: a stack is its leaf frame and the stack of its caller (0: none).
struct StackNode {
  StackId caller = 0;
  FrameId frame = 0;
  bool operator==(const StackNode&) const = default;
};

// A marker frame of torch seen on a sample's stack, root first in a Context.
enum class MarkerKind : std::uint8_t { kCompile = 1, kAttempt = 2, kBackward = 3 };
struct Marker {
  MarkerKind kind = MarkerKind::kCompile;
  bool readable = true;  // false: the frame is there, its local was not readable or not set
  std::int32_t autograd_id = -1;  // -1: absent
  std::int32_t frame_id = -1;
  std::int32_t compile_id = -1;
  std::int32_t attempt = -1;
  std::uint32_t depth = 0;     // Python frames between it and the root
  std::uint64_t instance = 0;  // differs between two calls of the marker on one stack
  CodeId user_code = 0;        // kCompile: the function being compiled, 0: not known
  bool operator==(const Marker&) const = default;
};

// What torch's own thread-locals said (source T): the compile open on the thread, and the names of
// the phases it is in (torch's `dynamo_timed` names, outermost first).
enum class TorchStatus : std::uint8_t {
  kNone = 0,  // not asked: no torch, or its thread-locals are not known on this thread
  kRead = 1,
  kStale = 2,  // asked, but what was there is no longer what we knew: not used
};
struct TorchState {
  TorchStatus status = TorchStatus::kNone;
  std::int32_t autograd_id = -1;  // all -1: no compile is open
  std::int32_t frame_id = -1;
  std::int32_t compile_id = -1;
  std::int32_t attempt = -1;
  std::vector<StringId> phases;
  bool operator==(const TorchState&) const = default;
};

// All markers of a stack, root first, and torch's own word. Context 0 is "no marker on the stack,
// torch not asked".
struct Context {
  std::vector<Marker> markers;
  TorchState torch{};
  bool operator==(const Context&) const = default;
};

struct Process {
  std::int32_t pid = 0;
  std::int32_t parent_pid = 0;  // 0: not a child seen by us
  StringId comm = 0;
  StringId exe = 0;
  StringId command_line = 0;
  StringId python = 0;         // "3.11.7", "" for none
  StringId torch = 0;          // "2.13.0+cpu", "" for none
  std::uint64_t start_ns = 0;  // first seen; 0: there when we attached
  // Its stacks were looked at when we attached, and no thread was compiling: what the first samples
  // show began after that. False also when that is not known.
  bool no_compile_at_start = false;
  bool operator==(const Process&) const = default;
};

struct Thread {
  std::int32_t pid = 0;
  std::int32_t tid = 0;
  StringId comm = 0;
  bool operator==(const Thread&) const = default;
};

// Sample.flags
inline constexpr std::uint8_t kSampleTruncated = 1;   // root side cut at the frame limit
inline constexpr std::uint8_t kSampleFrameFault = 2;  // root side missing, unreadable
inline constexpr std::uint8_t kSampleMarkersCut = 4;
inline constexpr std::uint8_t kSampleNoPython =
    8;  // thread without Python frames: native and kernel frames only
inline constexpr std::uint8_t kSampleNativeCut = 16;  // native frames missing towards the root
// Native and Python frames did not fit together: native ones towards the leaf, Python towards the root.
inline constexpr std::uint8_t kSampleUnmerged = 32;
// Frames are missing, or their order is not known.
inline constexpr std::uint8_t kSampleIncomplete =
    kSampleTruncated | kSampleFrameFault | kSampleMarkersCut | kSampleNativeCut | kSampleUnmerged;

struct Sample {
  std::uint64_t time_ns = 0;
  ThreadId thread = 0;
  StackId stack = 0;
  ContextId context = 0;
  std::uint8_t flags = 0;
  bool operator==(const Sample&) const = default;
};

// An exact event (source E): something began or ended on a thread at that moment, known from a probe or a
// hardware watchpoint, not from samples. In time order when read; written in any.
enum class EdgeKind : std::uint8_t {
  kPhaseBegin = 1,   // torch opened a phase: `name` is its name, `depth` how many are open with it
  kPhaseEnd = 2,     // ... closed it: `depth` counts it still
  kRegionBegin = 3,  // a run of a compiled region: `name` is "Torch-Compiled Region: 0/1"
  kRegionEnd = 4,
  kInlineBegin = 5,  // Dynamo begins to trace a user function: `code`
  kInlineEnd = 6,    // ... has traced it; `name` is "raised" when an exception ended that, the time
                     // is then that of the next event
  kWatchBegin = 7,   // phases that were open on this thread when watching began: in `context`
  kWatchEnd = 8,     // its phases are not watched any more
};
// `depth` of a kRegionEnd: the run was over before, nothing says since when.
inline constexpr std::uint32_t kLeftBefore = 1;
struct SpanEdge {
  std::uint64_t time_ns = 0;
  ThreadId thread = 0;
  EdgeKind kind = EdgeKind::kPhaseBegin;
  StringId name = 0;
  std::uint32_t depth = 0;
  CodeId code = 0;
  ContextId context = 0;  // its `torch` part: the compile open on the thread at that moment
  // CPU time of the thread so far, as old as the last scheduler tick (4 ms at 250 Hz); 0: not known.
  std::uint64_t cpu_ns = 0;
  bool operator==(const SpanEdge&) const = default;
};

// A document about a process, kept as it was found: `kind` says what `body` holds.
//   "history"    JSON of what torch remembers of its compiles; `name` is "attach" or "detach"
//   "generated"  the content of a file a compile made; `name` is JSON that describes it
//   "threads"    JSON of names that Python has for threads, by thread id
//   "rank"       `name` is RANK in the environment the process was started with
//   "machine"    JSON of who used the CPUs of the machine; of no process
struct Fact {
  std::int32_t pid = 0;
  std::uint64_t time_ns = 0;
  StringId kind = 0;
  StringId name = 0;
  BlobId body = 0;
  bool operator==(const Fact&) const = default;
};

// A file that native frames lie in, so that their names can be looked up in the same file elsewhere.
struct FileSegment {         // a part of it that is loaded
  std::uint64_t offset = 0;  // in the file
  std::uint64_t size = 0;
  std::uint64_t address = 0;  // in the file's own address space
  bool operator==(const FileSegment&) const = default;
};
inline constexpr std::size_t kMaxFileSegments = 64;
struct ObjectFile {
  StringId object = 0;    // as in Frame::object
  StringId build_id = 0;  // lower-case hex, "" when it has none
  std::vector<FileSegment> segments;
  bool operator==(const ObjectFile&) const = default;
};

// What is known once, at the start. Kept as JSON in the file; see docs/reference/recording-format.md.
// Meta.mode: nothing in the target was changed, so only samples tell of compiles.
inline constexpr const char* kPassiveMode = "passive";

struct Meta {
  std::int32_t target_pid = 0;  // 0: a command or several; -1: every process there was
  std::uint32_t frequency_hz = 0;
  std::uint64_t period_ns = 0;          // between two samples of one CPU
  std::uint64_t start_ns = 0;           // CLOCK_MONOTONIC
  std::int64_t realtime_offset_ns = 0;  // CLOCK_REALTIME - CLOCK_MONOTONIC
  std::string event;                    // "cpu-clock" or "cycles"
  std::string host;
  std::string kernel;
  std::string command;  // the command line of the target
  std::string python;   // of the target, "" for none
  std::string torch;
  std::string version;  // of dynprof-bpf
  std::string mode;     // "" or kPassiveMode
  bool operator==(const Meta&) const = default;
};

// Known at the end: how it ended and everything that went wrong, by counter name (bpf/counters.h).
struct Trailer {
  std::uint64_t end_ns = 0;
  std::string reason;  // "interrupted", "duration", "target exited", ...
  std::map<std::string, std::uint64_t> counters;
  bool operator==(const Trailer&) const = default;
};

// The rows of each kind of chunk, by its name in chunk_list.h. What the reader does with them: edges,
// waits, GPU launches and such are in order of time; native names and source places have been
// applied to frames and stacks, and are empty (Recording::open_as_recorded keeps the latter).
struct Tables {
#define DYNPROF_TABLE(kind, number, name, Row, member) std::vector<Row> member;
  DYNPROF_TABLES(DYNPROF_TABLE)
#undef DYNPROF_TABLE
#define DYNPROF_LIST(kind, number, name, Row, member, function) std::vector<Row> member;
  DYNPROF_LISTS(DYNPROF_LIST)
#undef DYNPROF_LIST
};

}  // namespace dynprof
