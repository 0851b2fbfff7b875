// sample_dump RECORDING: everything the tests ask of a recording, as one JSON document on stdout.
// It goes through the same reader, resolver and attribution as the exporters do.
//
//   {"meta": {...}, "trailer": {...}, "complete": bool, "damage": [...],
//    "processes": [{"pid", "parent_pid", "comm", "exe", "command_line", "python", "torch"}],
//    "frames": [[function, file, line, name, kind, unreadable reason or null, native offset],
//               ...],
//    "stacks": [[caller stack, frame], ...],
//    "compiles": [{"id", "attempt", "kind", "thread", "stem", ...}],
//    "samples": [[time_ns, pid, tid, stack, compile or -1, phase, flags, markers, context,
//                 cpu_ns], ...],
//    "contexts": [{"markers": [[id, kind]], "torch": null or "stale" or {"id", "attempt", "phases"}}],
//    "edges": [[time_ns, pid, tid, kind, name, depth, context, function, cpu_ns], ...],
//    "facts": [[pid, time_ns, kind, name, bytes], ...],
//    "waits": [[begin_ns, span_ns, length_ns, runnable_ns, cpu_ns, pid, tid, stack, kind, count,
//               flags, compile or -1, context], ...],
//    "objects": [[object, build-id, segments], ...]}
#include <unistd.h>

#include <string>

#include "fmt/format.h"
#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/waits.h"
#include "symbolizer/base/json_writer.h"
#include "symbolizer/recording/reader.h"

namespace dynprof {
namespace {

void write_meta(JsonWriter& json, const Recording& recording) {
  const Meta& meta = recording.meta();
  json.key("meta");
  json.begin_object();
  json.field("target_pid", meta.target_pid);
  json.field("frequency_hz", meta.frequency_hz);
  json.field("period_ns", meta.period_ns);
  json.field("start_ns", meta.start_ns);
  json.field("realtime_offset_ns", meta.realtime_offset_ns);
  json.field("event", meta.event);
  json.field("command", meta.command);
  json.field("python", meta.python);
  json.field("torch", meta.torch);
  json.end_object();

  const Trailer& trailer = recording.trailer();
  json.key("trailer");
  json.begin_object();
  json.field("end_ns", trailer.end_ns);
  json.field("reason", trailer.reason);
  json.key("counters");
  json.begin_object();
  for (const auto& [name, count] : trailer.counters) {
    json.field(json_escape(name), count);
  }
  json.end_object();
  json.end_object();
  json.field("complete", recording.complete());
  json.key("damage");
  json.begin_array();
  for (const std::string& sentence : recording.damage()) json.string(sentence);
  json.end_array();
}

void write_processes(JsonWriter& json, const Tables& tables) {
  json.key("processes");
  json.begin_array();
  for (const Process& process : tables.processes) {
    json.begin_object();
    json.field("pid", process.pid);
    json.field("parent_pid", process.parent_pid);
    json.field("comm", tables.strings[process.comm]);
    json.field("exe", tables.strings[process.exe]);
    json.field("command_line", tables.strings[process.command_line]);
    json.field("python", tables.strings[process.python]);
    json.field("torch", tables.strings[process.torch]);
    json.end_object();
  }
  json.end_array();
}

void write_frames(JsonWriter& json, const Tables& tables, const ResolvedFrames& frames) {
  json.key("frames");
  json.begin_array();
  for (std::size_t id = 0; id < tables.frames.size(); ++id) {
    const ResolvedFrame& frame = frames[static_cast<FrameId>(id)];
    json.line_break();
    json.begin_array();
    json.string(frame.function);
    json.string(frame.file);
    json.number(frame.line);
    json.string(frame.name);
    json.number(static_cast<int>(frame.kind));
    if (frame.unreadable == Unreadable::kNo) {
      json.null();
    } else {
      json.string(unreadable_text(frame.unreadable));
    }
    json.number(tables.frames[id].offset);
    json.string(frame.source_file);
    json.boolean(frame.inlined);
    json.number(frame.kind == FrameKind::kPython ? 0 : frame.first_line);
    json.end_array();
  }
  json.end_array();
  json.key("stacks");
  json.begin_array();
  for (const StackNode& node : tables.stacks) {
    json.begin_array();
    json.number(node.caller);
    json.number(node.frame);
    json.end_array();
  }
  json.end_array();
}

void write_compiles(JsonWriter& json, const Tables& tables, const Attribution& attribution) {
  json.key("compiles");
  json.begin_array();
  for (std::size_t i = 0; i < attribution.compiles().size(); ++i) {
    const Compile& compile = attribution.compiles()[i];
    // What only torch remembers is on no thread.
    const Thread thread =
        compile.thread != kNoThread ? tables.threads[compile.thread] : Thread{.pid = compile.pid};
    json.line_break();
    json.begin_object();
    json.field("id", compile.id.text());
    json.field("attempt", compile.attempt);
    json.field("kind", compile_kind_text(compile.kind));
    json.field("repeat", compile.repeat);
    json.field("pid", thread.pid);
    json.field("tid", thread.tid);
    json.field("first_ns", compile.first_ns);
    json.field("last_ns", compile.last_ns);
    json.field("samples", compile.samples);
    json.field("stem", attribution.file_stem(static_cast<CompileIndex>(i)));
    json.end_object();
  }
  json.end_array();
}

void write_samples(JsonWriter& json, const Tables& tables, const Attribution& attribution) {
  json.key("samples");
  json.begin_array();
  attribution.for_each([&](const AttributedSample& attributed) {
    const Sample& sample = attributed.sample;
    const Thread& thread = tables.threads[sample.thread];
    json.line_break();
    json.begin_array();
    json.number(sample.time_ns);
    json.number(thread.pid);
    json.number(thread.tid);
    json.number(sample.stack);
    json.number(attributed.compile == kNoCompile ? std::int64_t{-1}
                                                 : std::int64_t{attributed.compile});
    json.string(phase_text(attributed.phase));
    json.number(static_cast<unsigned>(sample.flags));
    json.number(tables.contexts[sample.context].markers.size());
    json.number(sample.context);
    json.number(attributed.cpu_ns);
    json.end_array();
  });
  json.end_array();
}

std::string id_text(std::int32_t autograd, std::int32_t frame, std::int32_t compile) {
  return TraceId{autograd, frame, compile}.text();
}

void write_contexts(JsonWriter& json, const Tables& tables) {
  json.key("contexts");
  json.begin_array();
  for (const Context& context : tables.contexts) {
    json.line_break();
    json.begin_object();
    json.key("markers");
    json.begin_array();
    for (const Marker& marker : context.markers) {
      json.begin_array();
      json.string(id_text(marker.autograd_id, marker.frame_id, marker.compile_id));
      json.number(static_cast<int>(marker.kind));
      json.end_array();
    }
    json.end_array();
    json.key("torch");
    if (context.torch.status == TorchStatus::kNone) {
      json.null();
    } else if (context.torch.status == TorchStatus::kStale) {
      json.string("stale");
    } else {
      const TorchState& torch = context.torch;
      json.begin_object();
      json.field("id", id_text(torch.autograd_id, torch.frame_id, torch.compile_id));
      json.field("attempt", torch.attempt);
      json.key("phases");
      json.begin_array();
      for (StringId phase : torch.phases) json.string(tables.strings[phase]);
      json.end_array();
      json.end_object();
    }
    json.end_object();
  }
  json.end_array();
}

void write_edges(JsonWriter& json, const Tables& tables) {
  json.key("edges");
  json.begin_array();
  for (const SpanEdge& edge : tables.edges) {
    const Thread& thread = tables.threads[edge.thread];
    json.line_break();
    json.begin_array();
    json.number(edge.time_ns);
    json.number(thread.pid);
    json.number(thread.tid);
    json.number(static_cast<int>(edge.kind));
    json.string(tables.strings[edge.name]);
    json.number(edge.depth);
    json.number(edge.context);
    json.string(tables.strings[tables.codes[edge.code].name]);
    json.number(edge.cpu_ns);
    json.end_array();
  }
  json.end_array();
}

void write_objects(JsonWriter& json, const Tables& tables) {
  json.key("objects");
  json.begin_array();
  for (const ObjectFile& file : tables.object_files) {
    json.begin_array();
    json.string(tables.strings[file.object]);
    json.string(tables.strings[file.build_id]);
    json.number(static_cast<std::uint64_t>(file.segments.size()));
    json.end_array();
  }
  json.end_array();
}

void write_facts(JsonWriter& json, const Tables& tables) {
  json.key("facts");
  json.begin_array();
  for (const Fact& fact : tables.facts) {
    json.line_break();
    json.begin_array();
    json.number(fact.pid);
    json.number(fact.time_ns);
    json.string(tables.strings[fact.kind]);
    json.string(tables.strings[fact.name]);
    json.number(tables.blobs[fact.body].size());
    json.end_array();
  }
  json.end_array();
}

void write_waits(JsonWriter& json, const Tables& tables, const Waits& waits) {
  json.key("waits");
  json.begin_array();
  for (std::size_t i = 0; i < tables.waits.size(); ++i) {
    const Wait& wait = tables.waits[i];
    const Thread& thread = tables.threads[wait.thread];
    const CompileIndex owner = waits.owner(i).compile;
    json.line_break();
    json.begin_array();
    for (std::uint64_t number :
         {wait.begin_ns, wait.span_ns, wait.length_ns, wait.runnable_ns, wait.cpu_ns})
      json.number(number);
    json.number(thread.pid);
    json.number(thread.tid);
    json.number(wait.stack);
    json.string(wait_kind_text(wait.kind));
    json.number(wait.count);
    json.number(static_cast<unsigned>(wait.flags));
    json.number(owner == kNoCompile ? std::int64_t{-1} : std::int64_t{owner});
    json.number(wait.context);
    json.end_array();
  }
  json.end_array();
}

int dump(const std::string& path) {
  auto opened = Recording::open(path);
  if (!opened) {
    fmt::print(stderr, "sample_dump: {}\n", opened.error().what);
    return 1;
  }
  const Recording& recording = **opened;
  const Attribution attribution(recording);
  auto out = OutputFile::adopt(UniqueFd(::dup(STDOUT_FILENO)), "stdout");
  JsonWriter json(*out);
  json.begin_object();
  write_meta(json, recording);
  write_processes(json, recording.tables());
  write_frames(json, recording.tables(), attribution.frames());
  write_compiles(json, recording.tables(), attribution);
  write_samples(json, recording.tables(), attribution);
  write_contexts(json, recording.tables());
  write_edges(json, recording.tables());
  write_facts(json, recording.tables());
  write_waits(json, recording.tables(), Waits(attribution));
  write_objects(json, recording.tables());
  json.end_object();
  if (auto done = json.finish(); !done) {
    fmt::print(stderr, "sample_dump: {}\n", done.error().what);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: sample_dump RECORDING\n");
    return 2;
  }
  return dynprof::dump(argv[1]);
}
