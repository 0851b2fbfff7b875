#include "symbolizer/recording/table_codec.h"

#include "symbolizer/base/byte_reader.h"
#include "symbolizer/recording/format.h"

namespace dynprof::recording {
namespace {

// Frame tag: the kind in the low bits, then the entry flag.
constexpr std::uint8_t kFrameEntry = 4;
constexpr std::uint8_t kFrameKindMask = 3;
// Marker tag: the kind in the low bits, then "not readable".
constexpr std::uint8_t kMarkerUnreadable = 0x80;

template <class T>
T checked_enum(ByteReader& in, std::uint8_t value, T last) {
  if (value > static_cast<std::uint8_t>(last)) in.fail();
  return static_cast<T>(value);
}

}  // namespace

void encode(std::span<const std::string_view> strings, ByteWriter& out) {
  ByteWriter lengths;
  for (std::string_view text : strings) lengths.varint(text.size());
  out.sized(lengths.view());
  for (std::string_view text : strings) out.bytes(text);
}

bool decode_strings(Bytes raw, std::uint32_t count, std::vector<std::string_view>& out) {
  ByteReader in(raw);
  ByteReader lengths(in.sized());
  for (std::uint32_t i = 0; i < count && in.ok() && lengths.ok(); ++i) {
    Bytes text = in.bytes(lengths.varint());
    out.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
  }
  return in.done() && lengths.done();
}

// Names and files repeat from one code object to the next, and what is new has the next id.
void encode(std::span<const Code> codes, ByteWriter& out) {
  Code last;
  for (const Code& code : codes) {
    out.u8(static_cast<std::uint8_t>(code.unreadable));
    out.varint(code.python);
    out.difference(code.filename, last.filename);
    out.difference(code.name, last.name);
    out.difference(code.qualname, code.name);
    out.signed_varint(code.first_line);
    out.difference(code.line_table, last.line_table);
    last = code;
  }
}

bool decode(Bytes raw, std::uint32_t count, std::vector<Code>& out) {
  ByteReader in(raw);
  Code last;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    Code code;
    code.unreadable = checked_enum(in, in.u8(), Unreadable::kLost);
    code.python = static_cast<std::uint16_t>(in.varint_up_to(0xffff));
    code.filename = in.plus_difference32(last.filename);
    code.name = in.plus_difference32(last.name);
    code.qualname = in.plus_difference32(code.name);
    code.first_line = in.signed_varint32();
    code.line_table = in.plus_difference32(last.line_table);
    out.push_back(code);
    last = code;
  }
  return in.done();
}

void encode(std::span<const Frame> frames, ByteWriter& out) {
  for (const Frame& frame : frames) {
    auto tag = static_cast<std::uint8_t>(frame.kind);
    out.u8(frame.entry ? tag | kFrameEntry : tag);
    if (frame.kind == FrameKind::kPython) {
      out.varint(frame.code);
      out.signed_varint(frame.unit);
    } else {
      out.varint(frame.symbol);
      out.varint(frame.object);
      out.varint(frame.offset);
    }
  }
}

bool decode(Bytes raw, std::uint32_t count, std::vector<Frame>& out) {
  ByteReader in(raw);
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    const std::uint8_t tag = in.u8();
    if (tag > (kFrameKindMask | kFrameEntry)) in.fail();
    Frame frame;
    frame.kind = checked_enum(in, tag & kFrameKindMask, FrameKind::kKernel);
    frame.entry = (tag & kFrameEntry) != 0;
    if (frame.kind == FrameKind::kPython) {
      frame.code = in.varint32();
      frame.unit = in.signed_varint32();
    } else {
      frame.symbol = in.varint32();
      frame.object = in.varint32();
      frame.offset = in.varint();
    }
    out.push_back(frame);
  }
  return in.done();
}

// New stacks come as paths: a branching point, then nodes that call each other. So callers are
// runs, (own id - caller, or 0 for the root; how many nodes follow of which each is called by the
// one before), and frames a column of their own in which repeated call chains look alike.
void encode(std::span<const StackNode> stacks, StackId first, ByteWriter& out) {
  ByteWriter runs;
  ByteWriter frames;
  for (std::size_t i = 0; i < stacks.size();) {
    const std::uint64_t id = first + i;
    runs.varint(stacks[i].caller == 0 ? 0 : id - stacks[i].caller);
    std::size_t next = i + 1;
    while (next < stacks.size() && stacks[next].caller == first + next - 1) ++next;
    runs.varint(next - i - 1);
    i = next;
  }
  for (const StackNode& node : stacks) frames.varint(node.frame);
  out.sized(runs.view());
  out.bytes(frames.view());
}

bool decode(Bytes raw, std::uint32_t count, std::vector<StackNode>& out) {
  ByteReader in(raw);
  ByteReader runs(in.sized());
  std::uint32_t left = count;
  while (left > 0 && in.ok() && runs.ok()) {
    const std::uint64_t id = out.size();
    const std::uint64_t distance = runs.varint_up_to(id);
    const std::uint64_t following = runs.varint_up_to(left - 1);
    const StackId caller = distance == 0 ? 0 : static_cast<StackId>(id - distance);
    out.push_back(StackNode{caller, in.varint32()});
    for (std::uint64_t i = 0; i < following && in.ok(); ++i) {
      out.push_back(StackNode{static_cast<StackId>(out.size() - 1), in.varint32()});
    }
    left -= static_cast<std::uint32_t>(following + 1);
  }
  return in.done() && runs.done();
}

static void encode_torch(const TorchState& torch, ByteWriter& out) {
  out.u8(static_cast<std::uint8_t>(torch.status));
  if (torch.status != TorchStatus::kRead) return;
  out.signed_varint(torch.autograd_id);
  out.signed_varint(torch.frame_id);
  out.signed_varint(torch.compile_id);
  out.signed_varint(torch.attempt);
  out.varint(torch.phases.size());
  for (StringId phase : torch.phases) out.varint(phase);
}

static TorchState decode_torch(ByteReader& in) {
  TorchState torch;
  torch.status = checked_enum(in, in.u8(), TorchStatus::kStale);
  if (torch.status != TorchStatus::kRead) return torch;
  torch.autograd_id = in.signed_varint32();
  torch.frame_id = in.signed_varint32();
  torch.compile_id = in.signed_varint32();
  torch.attempt = in.signed_varint32();
  const std::uint64_t phases = in.varint_up_to(kMaxOpenPhases);
  for (std::uint64_t i = 0; i < phases && in.ok(); ++i) torch.phases.push_back(in.varint32());
  return torch;
}

void encode(std::span<const Context> contexts, ByteWriter& out) {
  std::uint64_t instance = 0;
  for (const Context& context : contexts) {
    out.varint(context.markers.size());
    for (const Marker& marker : context.markers) {
      auto tag = static_cast<std::uint8_t>(marker.kind);
      out.u8(marker.readable ? tag : tag | kMarkerUnreadable);
      out.signed_varint(marker.autograd_id);
      out.signed_varint(marker.frame_id);
      out.signed_varint(marker.compile_id);
      out.signed_varint(marker.attempt);
      out.varint(marker.depth);
      out.difference(marker.instance, instance);
      out.varint(marker.user_code);
      instance = marker.instance;
    }
    encode_torch(context.torch, out);
  }
}

bool decode(Bytes raw, std::uint32_t count, std::vector<Context>& out) {
  ByteReader in(raw);
  std::uint64_t instance = 0;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    Context context;
    const std::uint64_t markers = in.varint_up_to(kMaxMarkers);
    for (std::uint64_t m = 0; m < markers && in.ok(); ++m) {
      Marker marker;
      const std::uint8_t tag = in.u8();
      marker.readable = (tag & kMarkerUnreadable) == 0;
      marker.kind = checked_enum(in, tag & ~kMarkerUnreadable, MarkerKind::kBackward);
      if (static_cast<std::uint8_t>(marker.kind) == 0) in.fail();
      marker.autograd_id = in.signed_varint32();
      marker.frame_id = in.signed_varint32();
      marker.compile_id = in.signed_varint32();
      marker.attempt = in.signed_varint32();
      marker.depth = in.varint32();
      marker.instance = in.plus_difference(instance);
      marker.user_code = in.varint32();
      instance = marker.instance;
      context.markers.push_back(marker);
    }
    context.torch = decode_torch(in);
    out.push_back(std::move(context));
  }
  return in.done();
}

void encode(std::span<const Thread> threads, ByteWriter& out) {
  for (const Thread& thread : threads) {
    out.signed_varint(thread.pid);
    out.signed_varint(thread.tid);
    out.varint(thread.comm);
  }
}

bool decode(Bytes raw, std::uint32_t count, std::vector<Thread>& out) {
  ByteReader in(raw);
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    Thread thread;
    thread.pid = in.signed_varint32();
    thread.tid = in.signed_varint32();
    thread.comm = in.varint32();
    out.push_back(thread);
  }
  return in.done();
}

}  // namespace dynprof::recording
