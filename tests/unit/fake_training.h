// Recordings as a small training run leaves them, and as a hostile target might. For tests of
// exporters.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/fake_recording.h"

namespace dynprof {

class FakeTraining : public FakeRecording {
 public:
  static constexpr std::int32_t kPid = 100;

  FakeTraining() {
    process(Process{.pid = kPid, .comm = string("python3"), .python = string("3.11.7")});
    main_ = thread(kPid, kPid, "python3");
    autograd_ = thread(kPid, kPid + 7, "pt_autograd_0");
    user_code_ = code("/home/u/train.py", "Block.forward", 20);
    user_ = {python("/home/u/train.py", "<module>", 1, 60),
             python("/home/u/train.py", "main", 40, 44)};
    // Frames of the user's, then torch's up to the compile's marker.
    before_ = user_;
    before_.push_back(
        python("/site/torch/nn/modules/module.py", "Module._wrapped_call_impl", 1780, 1790));
    compile_ = before_;
    compile_.push_back(python(kConvert, "_compile", 900, 1000));
    backward_ = {python("/site/torch/autograd/function.py", "BackwardCFunction.apply", 300, 311),
                 python("/site/torch/_functorch/_aot_autograd/runtime_wrappers.py",
                        "_AutogradBackwardCompiler.get_or_compile", 2000, 2010)};
  }

  ThreadId main_thread() const { return main_; }

  void run(std::uint64_t count) {
    sample(main_, stack(with(user_, {python("/home/u/train.py", "step", 50, 52)})), 0, 0, count);
  }
  // Dynamo, then Inductor, then a pause as for g++, then Inductor again; `wait` in periods.
  void compile(std::int32_t frame, std::int32_t again, std::int32_t attempt = 0,
               std::uint64_t wait = 10) {
    ContextId inside = context(markers(frame, again, attempt));
    auto trace = with(compile_, {python(kConvert, "compile_frame", 1500, 1510)});
    sample(main_, stack(with(compile_, {python(kConvert, "compile_inner", 1300, 1301)})),
           context({markers(frame, again, attempt)[0]}), 0, 1);
    sample(main_, stack(with(trace, {python(kConvert, "transform", 1700, 1702)})), inside, 0, 3);
    sample(main_, stack(with(trace, {python(kConvert, "transform", 1700, 1733)})), inside, 0, 2);
    auto lower =
        with(trace, {python("/site/torch/_inductor/compile_fx.py", "compile_fx", 2200, 2210)});
    sample(main_,
           stack(with(lower,
                      {python("/site/torch/_inductor/graph.py", "GraphLowering.run", 900, 905)})),
           inside, 0, 4);
    skip(wait);
    sample(main_, stack(with(lower, {native("cfunction_call", "/usr/lib/libpython3.11.so", 64)})),
           inside, 0, 2);
  }
  void backward(std::int32_t frame, std::int32_t again) {
    Marker marker = backward_marker(frame, again, 0, 0x900);
    marker.depth = 1;
    auto work =
        with(backward_, {python("/site/torch/_inductor/compile_fx.py", "compile_fx", 2200, 2210)});
    sample(autograd_, stack(work), context({marker}), 0, 5);
  }
  // Three ids, a recompile, a restart and a lazy backward.
  void whole_run() {
    run(5);
    compile(0, 0);
    run(3);
    compile(1, 0, 0, 0);
    compile(1, 0, 1);
    backward(1, 0);
    run(4);
    compile(0, 1);
    run(6);
  }

 private:
  static constexpr const char* kConvert = "/site/torch/_dynamo/convert_frame.py";

  static std::vector<FrameId> with(std::vector<FrameId> frames, std::vector<FrameId> more) {
    frames.insert(frames.end(), more.begin(), more.end());
    return frames;
  }
  std::vector<Marker> markers(std::int32_t frame, std::int32_t again, std::int32_t attempt) {
    Marker compile = compile_marker(frame, again, 0x500, user_code_);
    compile.depth = static_cast<std::uint32_t>(compile_.size() - 1);
    Marker tries = attempt_marker(attempt, 0x600);
    tries.depth = compile.depth + 1;
    return {compile, tries};
  }

  ThreadId main_ = 0, autograd_ = 0;
  CodeId user_code_ = 0;
  std::vector<FrameId> user_, before_, compile_, backward_;
};

// Names no friendly program has, at every place a name goes, and times out of order.
class HostileRecording : public FakeTraining {
 public:
  HostileRecording() {
    std::string long_name;
    while (long_name.size() < 10'000) long_name += "ä→";
    const std::vector<std::string> names = {"with\nnew\r\nlines",
                                            "\x1b[31mred\x1b[0m",
                                            "quote\"back\\slash",
                                            "</script><b>",
                                            "lone \xed\xb2\x80",
                                            "\xff\xfe\x80 raw",
                                            std::string("nul\0byte", 8),
                                            "semi;colon 7",
                                            "../../../etc/passwd",
                                            "\xe2\x80\xae"
                                            "rtl",
                                            "(paren) (dso)",
                                            long_name,
                                            " ",
                                            "\t",
                                            "<module>",
                                            ""};
    process(Process{.pid = 200, .comm = string("ev\"il\n\x1b[2J")});
    edit_meta().command = "python3 \"x\n\xff";
    ThreadId evil = thread(200, 201, "th\x1b[1m\"\n");
    ThreadId negative = thread(-1, -5, "negative");
    ThreadId clash = thread(200, 1'000'000'201, "clash");
    run(2);
    for (const std::string& name : names) {
      FrameId frame = python(name, name, 1, 3);
      sample(evil, stack({frame, native(name, name, ~std::uint64_t{0}), kernel(name)}), 0, 0, 3);
      sample(clash, stack({frame, frame}), 0, kSampleTruncated, 2);
      sample(negative, stack({frame}), 0, kSampleFrameFault);
    }
    sample(evil, 0);
    sample_at(3, evil, stack({python("early.py", "before_the_start", 1)}));
    sample_at(~std::uint64_t{0} - 1, evil, stack({python("late.py", "end_of_time", 1)}));
    sample(main_thread(), stack({FrameId{0}}));  // unreadable
    compile(0, 0);
    compile(-7, 2'000'000'000);
    edit_trailer().end_ns = now();
  }
};

}  // namespace dynprof
