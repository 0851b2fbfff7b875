// What is written is what is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/recording_example.h"

namespace dynprof {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Written {
  UniqueFd file;
  std::unique_ptr<RecordingWriter> writer;
};

Written begin(const Meta& meta = example_meta()) {
  UniqueFd file = memory_file();
  UniqueFd copy(::dup(file.get()));
  auto writer = RecordingWriter::create(std::move(file), meta);
  EXPECT_TRUE(writer.has_value());
  return {std::move(copy), std::move(*writer)};
}

std::unique_ptr<Recording> read(const Written& written) {
  auto recording = recording::open_fd(UniqueFd(::dup(written.file.get())), "test.dynprof");
  EXPECT_TRUE(recording.has_value()) << recording.error().what;
  return std::move(*recording);
}

TEST(RecordingRoundTrip, Everything) {
  auto result = read_bytes(example_bytes());
  ASSERT_TRUE(result.has_value()) << result.error().what;
  const Recording& recording = **result;
  EXPECT_EQ(recording.meta(), example_meta());
  EXPECT_EQ(recording.trailer(), example_trailer());
  EXPECT_TRUE(recording.complete());
  EXPECT_THAT(recording.damage(), IsEmpty());
  EXPECT_EQ(recording.sample_count(), 18u);

  const Tables& tables = recording.tables();
  EXPECT_EQ(tables.strings.at(0), "");
  EXPECT_EQ(tables.blobs.at(0), "");
  EXPECT_NE(tables.codes.at(0).unreadable, Unreadable::kNo);
  EXPECT_EQ(tables.processes.size(), 3u);
  EXPECT_EQ(tables.processes.at(2).parent_pid, 4242);
  EXPECT_EQ(tables.strings.at(tables.processes.at(2).command_line), "python3 worker 2");
  EXPECT_EQ(tables.threads.size(), 6u);
  EXPECT_EQ(tables.codes.size(), 7u);

  std::vector<std::string> texts = texts_of(recording);
  ASSERT_EQ(texts.size(), 18u);
  EXPECT_EQ(texts[0],
            "5000000000 4242/4242 python3 flags 0"
            " < memcpy_0@/usr/lib/libc.so.6+1234567890abcdef < :<stale code>:0:8:false:no lines"
            " < /home/user/model_0.py:Model0.forward:17:5:false:40 x 80"
            " < /home/user/model_0.py:Model0.forward:17:2:false:40 x 80"
            " < /home/user/model_0.py:Model0.forward:17:-1:true:40 x 80"
            " | 1 true -1 0 0 -1 7f0000001000 forward_0 | 2 false -1 -1 -1 0 7f0000000800 ");
  EXPECT_EQ(texts[3], "5001001300 4242/5000 worker flags 8 < do_idle@[kernel]+0");
  EXPECT_EQ(texts_of(recording), texts) << "the second visit differs";
}

TEST(RecordingRoundTrip, EqualContentHasEqualIds) {
  Written written = begin();
  RecordingWriter& writer = *written.writer;
  EXPECT_EQ(writer.string(""), 0u);
  EXPECT_EQ(writer.blob(""), 0u);
  EXPECT_EQ(writer.frame(Frame{}), 0u);
  EXPECT_EQ(writer.context(Context{}), 0u);
  EXPECT_EQ(writer.string("a"), 1u);
  EXPECT_EQ(writer.string("b"), 2u);
  ASSERT_TRUE(writer.flush().has_value());
  EXPECT_EQ(writer.string("a"), 1u);
  EXPECT_EQ(writer.blob("a"), 1u);
  Code code{.filename = 1, .name = 2, .qualname = 2, .first_line = 3, .line_table = 1};
  EXPECT_EQ(writer.code(code), 1u);
  EXPECT_EQ(writer.code(code), 1u);
  code.first_line = 4;
  EXPECT_EQ(writer.code(code), 2u);
  Frame frame{.code = 1, .unit = 5};
  EXPECT_EQ(writer.frame(frame), 1u);
  frame.offset = 77;  // says nothing about a Python frame
  EXPECT_EQ(writer.frame(frame), 1u);
  EXPECT_EQ(writer.stack({0, 1}), 1u);
  EXPECT_EQ(writer.stack({1, 1}), 2u);
  EXPECT_EQ(writer.stack({0, 1}), 1u);
  EXPECT_EQ(writer.stack({0, 0}), 3u);
  EXPECT_EQ(writer.stack({0, 0}), 3u);
  EXPECT_EQ(writer.thread({1, 1, 1}), 0u);
  EXPECT_EQ(writer.thread({1, 1, 2}), 1u);
  EXPECT_EQ(writer.thread({1, 1, 1}), 0u);
  writer.process({.pid = 1, .comm = 1});
  writer.process({.pid = 1, .comm = 1});
  writer.process({.pid = 1, .comm = 2});
  ASSERT_TRUE(writer.finish({}).has_value());

  auto recording = read(written);
  const Tables& tables = recording->tables();
  EXPECT_THAT(tables.strings, ElementsAre("", "a", "b"));
  EXPECT_THAT(tables.blobs, ElementsAre("", "a"));
  EXPECT_EQ(tables.codes.size(), 3u);
  EXPECT_EQ(tables.codes.at(2), code);
  EXPECT_THAT(tables.stacks,
              ElementsAre(StackNode{}, StackNode{0, 1}, StackNode{1, 1}, StackNode{}));
  EXPECT_EQ(tables.threads.size(), 2u);
  ASSERT_EQ(tables.processes.size(), 2u);
  EXPECT_EQ(tables.processes.at(1).comm, 2u);
}

TEST(RecordingRoundTrip, ExtremeValues) {
  Meta meta;
  meta.target_pid = INT32_MIN;
  meta.frequency_hz = UINT32_MAX;
  meta.period_ns = UINT64_MAX;
  meta.start_ns = 1;
  meta.realtime_offset_ns = INT64_MIN;
  Written written = begin(meta);
  RecordingWriter& writer = *written.writer;
  using namespace std::string_literals;
  std::string odd = "nul \0 newline \n escape \x1b and \xff\xed\xb2\x80"s;
  StringId text = writer.string(odd);
  StringId cut = writer.string(std::string((1 << 20) + 5, 'x'));
  EXPECT_EQ(writer.blob(std::string((8 << 20) + 1, 'x')), 0u);
  BlobId large = writer.blob(std::string(8 << 20, 'y'));
  Code code{text, cut, text, INT32_MIN, large, UINT16_MAX, Unreadable::kNoSymbol};
  CodeId code_id = writer.code(code);
  Frame python{.entry = true, .code = code_id, .unit = INT32_MAX};
  Frame native{.kind = FrameKind::kNative,
               .entry = true,
               .symbol = text,
               .object = text,
               .offset = UINT64_MAX};
  StackId stack = writer.stack({writer.stack({0, writer.frame(python)}), writer.frame(native)});
  Marker marker{MarkerKind::kBackward,
                false,
                INT32_MIN,
                INT32_MAX,
                INT32_MIN,
                INT32_MAX,
                UINT32_MAX,
                UINT64_MAX,
                code_id};
  TorchState torch{TorchStatus::kRead, INT32_MIN, INT32_MAX, -1, 0, {text, 0, cut}};
  Context context{std::vector<Marker>(256, marker), torch};
  ContextId context_id = writer.context(context);
  ThreadId thread = writer.thread({INT32_MIN, INT32_MAX, text});
  Process process{INT32_MAX, INT32_MIN, text, text, text, text, text, UINT64_MAX, true};
  writer.process(process);
  std::vector<SpanEdge> edges = {{0, thread, EdgeKind::kWatchEnd, 0, 0, 0, 0},
                                 {UINT64_MAX, thread, EdgeKind::kPhaseBegin, text, UINT32_MAX,
                                  code_id, context_id, UINT64_MAX}};
  writer.edge(edges[1]);  // they come sorted by time
  writer.edge(edges[0]);
  Fact fact{INT32_MIN, UINT64_MAX, text, cut, large};
  writer.fact(fact);
  std::vector<Sample> samples = {{1, thread, stack, context_id, 0xff},
                                 {UINT64_MAX, thread, 0, 0, 0},
                                 {UINT64_MAX, thread, stack, context_id, 1}};
  for (const Sample& sample : samples) writer.sample(sample);
  Trailer trailer{UINT64_MAX, "reason", {{"big", UINT64_MAX}, {"", 0}}};
  ASSERT_TRUE(writer.finish(trailer).has_value());

  auto recording = read(written);
  EXPECT_EQ(recording->tables().edges, edges);
  ASSERT_EQ(recording->tables().facts.size(), 1u);
  EXPECT_EQ(recording->tables().facts[0], fact);
  EXPECT_THAT(recording->damage(), IsEmpty());
  EXPECT_EQ(recording->meta(), meta);
  EXPECT_EQ(recording->trailer(), trailer);
  const Tables& tables = recording->tables();
  EXPECT_EQ(tables.strings.at(text), odd);
  EXPECT_EQ(tables.strings.at(cut).size(), 1u << 20);
  EXPECT_EQ(tables.blobs.at(large).size(), 8u << 20);
  EXPECT_EQ(tables.codes.at(code_id), code);
  EXPECT_EQ(tables.frames.at(1), python);
  EXPECT_EQ(tables.frames.at(2), native);
  EXPECT_EQ(tables.contexts.at(context_id), context);
  EXPECT_EQ(tables.processes.at(0), process);
  EXPECT_EQ(samples_of(*recording), samples);
}

// A native frame's name is looked up after the sample that has it, often a flush later.
TEST(RecordingRoundTrip, NativeFramesAreNamedLater) {
  Written written = begin();
  RecordingWriter& writer = *written.writer;
  StringId object = writer.string("libtorch_cpu.so");
  FrameId first = writer.frame({.kind = FrameKind::kNative, .object = object, .offset = 1});
  FrameId second = writer.frame({.kind = FrameKind::kKernel, .object = object, .offset = 2});
  FrameId third = writer.frame({.kind = FrameKind::kNative, .object = object, .offset = 3});
  FrameId python = writer.frame({.unit = 4});
  ASSERT_TRUE(writer.flush().has_value());
  writer.native_name({third, writer.string("c")});
  writer.native_name({python, writer.string("never")});
  ASSERT_TRUE(writer.flush().has_value());
  writer.native_name({first, writer.string("a")});
  EXPECT_EQ(writer.frame({.kind = FrameKind::kNative, .object = object, .offset = 1}), first);
  ASSERT_TRUE(writer.finish({}).has_value());
  auto recording = read(written);
  const Tables& tables = recording->tables();
  EXPECT_THAT(recording->damage(), IsEmpty());
  EXPECT_EQ(tables.strings.at(tables.frames.at(first).symbol), "a");
  EXPECT_EQ(tables.frames.at(second).symbol, 0u);
  EXPECT_EQ(tables.strings.at(tables.frames.at(third).symbol), "c");
  EXPECT_EQ(tables.frames.at(python), (Frame{.unit = 4}));
}

TEST(RecordingRoundTrip, BytesThatAreNotUtf8InMetaAreReplaced) {
  Meta meta = example_meta();
  meta.command = "python \xff";
  Written written = begin(meta);
  auto recording = read(written);
  EXPECT_EQ(recording->meta().command, "python \xef\xbf\xbd");
}

// Random trees, threads and times over many chunks, beyond every threshold for writing.
TEST(RecordingRoundTrip, Large) {
  Written written = begin();
  RecordingWriter& writer = *written.writer;
  std::mt19937 random(1);
  std::vector<FrameId> frames;
  for (int i = 0; i < 40'000; ++i) {
    StringId name = writer.string(fmt::format("function_{}", i));
    CodeId code = writer.code({.filename = 1, .name = name, .qualname = name, .first_line = i});
    frames.push_back(writer.frame({.code = code, .unit = i}));
  }
  std::vector<StackNode> nodes = {{}};
  std::map<std::pair<StackId, FrameId>, StackId> known;
  std::vector<ThreadId> threads;
  for (int i = 0; i < 300; ++i) threads.push_back(writer.thread({1, i, 1}));
  std::vector<Sample> samples;
  std::vector<std::uint64_t> times(threads.size(), 1'000'000);
  for (int i = 0; i < 30'000; ++i) {
    auto stack = static_cast<StackId>(random() % nodes.size());
    for (int depth = 0; depth < 5; ++depth) {
      StackNode node{stack, frames[random() % frames.size()]};
      stack = writer.stack(node);
      auto [it, added] = known.try_emplace({node.caller, node.frame}, stack);
      EXPECT_EQ(it->second, stack);
      if (added) {
        ASSERT_EQ(stack, nodes.size());
        nodes.push_back(node);
      }
    }
    ThreadId thread = threads[random() % threads.size()];
    times[thread] += random() % 3'000'000;
    Sample sample{times[thread], thread, stack, 0, static_cast<std::uint8_t>(random() % 3)};
    samples.push_back(sample);
    writer.sample(sample);
  }
  Trailer trailer = example_trailer();
  ASSERT_TRUE(writer.finish(trailer).has_value());
  EXPECT_EQ(writer.size(), file_bytes(written.file.get()).size());

  auto recording = read(written);
  EXPECT_THAT(recording->damage(), IsEmpty());
  EXPECT_EQ(recording->tables().stacks, nodes);
  EXPECT_EQ(recording->tables().strings.size(), 40'001u);
  EXPECT_EQ(recording->tables().strings.at(40'000), "function_39999");
  EXPECT_EQ(recording->sample_count(), samples.size());
  EXPECT_EQ(samples_of(*recording), samples);
}

// More samples than the reader keeps in memory.
TEST(RecordingRoundTrip, ManySamples) {
  Written written = begin();
  RecordingWriter& writer = *written.writer;
  const ThreadId thread = writer.thread({1, 1, 0});
  std::vector<StackId> stacks = {0};
  for (std::int32_t i = 0; i < 7; ++i)
    stacks.push_back(writer.stack({stacks.back(), writer.frame({.code = 0, .unit = i})}));
  std::vector<Sample> samples;
  for (std::uint64_t i = 0; i < 600'000; ++i) {
    const Sample sample{1'000'000 + i * 1'000, thread, stacks[i % stacks.size()], 0, 0};
    samples.push_back(sample);
    writer.sample(sample);
    if (i % 10'000 == 0) {
      ASSERT_TRUE(writer.flush());
    }
  }
  Trailer trailer = example_trailer();
  ASSERT_TRUE(writer.finish(trailer).has_value());
  auto recording = read(written);
  EXPECT_THAT(recording->damage(), IsEmpty());
  EXPECT_EQ(recording->sample_count(), samples.size());
  EXPECT_TRUE(samples_of(*recording) == samples);
  EXPECT_TRUE(samples_of(*recording) == samples) << "a second time";
}

// The writer's memory is bounded: beyond it content gets a second id, and both mean the same.
TEST(RecordingRoundTrip, ForgottenTextGetsASecondId) {
  Written written = begin();
  RecordingWriter& writer = *written.writer;
  auto text = [](int i) { return std::string((1 << 20) - 8, static_cast<char>('A' + i)); };
  for (int i = 0; i < 40; ++i) ASSERT_EQ(writer.string(text(i)), 1u + static_cast<unsigned>(i));
  StringId again = writer.string(text(0));
  EXPECT_EQ(again, 41u);
  EXPECT_EQ(writer.string(text(39)), 40u) << "what is recent is still known";
  ASSERT_TRUE(writer.finish({}).has_value());
  auto recording = read(written);
  EXPECT_THAT(recording->damage(), IsEmpty());
  EXPECT_EQ(recording->tables().strings.size(), 42u);
  EXPECT_EQ(recording->tables().strings.at(1), text(0));
  EXPECT_EQ(recording->tables().strings.at(again), text(0));
}

TEST(RecordingRoundTrip, ForgottenStacksGetASecondId) {
  Written written = begin();
  RecordingWriter& writer = *written.writer;
  constexpr StackId kStacks = 2'700'000;
  FrameId frame = writer.frame({.code = 0, .unit = 7});
  // A binary tree: each caller calls `frame`, then frame 0.
  for (StackId id = 1; id <= kStacks; ++id) {
    ASSERT_EQ(writer.stack({(id - 1) / 2, id % 2 == 1 ? frame : 0}), id);
  }
  StackId again = writer.stack({0, frame});
  EXPECT_EQ(again, kStacks + 1) << "nothing was forgotten: the test tests nothing";
  ThreadId thread = writer.thread({1, 1, 0});
  writer.sample({1, thread, kStacks, 0, 0});
  writer.sample({2, thread, again, 0, 0});
  ASSERT_TRUE(writer.finish({}).has_value());
  auto recording = read(written);
  EXPECT_EQ(recording->tables().stacks.size(), kStacks + 2u);
  EXPECT_EQ(recording->tables().stacks.at(again), (StackNode{0, frame}));
  EXPECT_EQ(recording->tables().stacks.at(1), (StackNode{0, frame}));
}

TEST(RecordingRoundTrip, ReadableWhileItIsWritten) {
  Written written = begin();
  write_example(*written.writer);
  auto recording = read(written);
  EXPECT_FALSE(recording->complete());
  EXPECT_THAT(recording->damage(), IsEmpty());
  EXPECT_EQ(recording->sample_count(), 18u);
  EXPECT_EQ(recording->trailer().end_ns, samples_of(*recording).back().time_ns);
  EXPECT_EQ(recording->trailer().reason, "unknown");
}

TEST(RecordingRoundTrip, Empty) {
  Written written = begin();
  ASSERT_TRUE(written.writer->finish({}).has_value());
  auto recording = read(written);
  EXPECT_TRUE(recording->complete());
  EXPECT_EQ(recording->sample_count(), 0u);
  EXPECT_THAT(recording->damage(), IsEmpty());
}

TEST(UnreadableText, EachReasonHasItsOwn) {
  EXPECT_EQ(unreadable_text(Unreadable::kNo), "");
  std::map<std::string_view, int> seen;
  for (int reason = 1; reason <= static_cast<int>(Unreadable::kLost); ++reason) {
    std::string_view text = unreadable_text(static_cast<Unreadable>(reason));
    EXPECT_TRUE(text.starts_with('<') && text.ends_with('>')) << text;
    EXPECT_EQ(seen[text]++, 0) << text;
  }
}

}  // namespace
}  // namespace dynprof
