// Stacks as torch makes them, on top of FakeRecording: the frames that matter to attribution.
#pragma once

#include <vector>

#include "tests/unit/fake_recording.h"

namespace dynprof {

struct FakeTorch {
  explicit FakeTorch(FakeRecording& recording) : fake(recording) {}

  static constexpr const char* kTorch = "/usr/lib/python3/site-packages/torch/";
  FrameId torch(const char* file, const char* qualname, std::int32_t first_line = 100,
                std::int32_t line = 0) {
    return fake.python(std::string(kTorch) + file, qualname, first_line, line);
  }
  FrameId module() { return fake.python("/home/me/train.py", "<module>", 1, 40); }
  FrameId step() { return fake.python("/home/me/train.py", "train.<locals>.step", 20, 25); }
  FrameId compile() { return torch("_dynamo/convert_frame.py", "_compile", 1633, 1700); }
  FrameId compile_frame() { return torch("_dynamo/convert_frame.py", "compile_frame", 1523, 1540); }
  FrameId build_guards() {
    return torch("_dynamo/convert_frame.py", "DynamoOutput.build_guards", 988);
  }
  FrameId aot() { return torch("_functorch/aot_autograd.py", "aot_module_simplified", 1131); }
  FrameId inductor() { return torch("_inductor/compile_fx.py", "compile_fx_inner", 788); }
  FrameId backward() {
    return torch("_functorch/_aot_autograd/runtime_wrappers.py",
                 "_AutogradBackwardCompiler.get_or_compile", 2809);
  }
  FrameId old_backward() {
    return torch("_functorch/_aot_autograd/runtime_wrappers.py",
                 "AOTDispatchAutograd.post_compile.<locals>.CompiledFunction._backward_impl", 1972);
  }
  FrameId run_compiled() {
    return torch("_functorch/_aot_autograd/utils.py", "call_func_at_runtime_with_args", 112);
  }

  // The stacks of the phases of a forward compile, and of plain run time.
  StackId running() { return fake.stack({module(), step()}); }
  StackId before_attempt() { return fake.stack({module(), step(), compile()}); }
  StackId tracing() { return fake.stack({module(), step(), compile(), compile_frame()}); }
  StackId lowering() {
    return fake.stack({module(), step(), compile(), compile_frame(), aot(), inductor()});
  }
  StackId guarding() {
    return fake.stack({module(), step(), compile(), compile_frame(), build_guards()});
  }
  StackId lowering_backward() { return fake.stack({module(), backward(), inductor()}); }

  // Contexts to go with them. An instance is one call of the marker.
  ContextId forward(std::int32_t frame, std::int32_t compile, std::int32_t attempt,
                    std::uint64_t instance, CodeId user_code = 0) {
    return fake.context({FakeRecording::compile_marker(frame, compile, instance, user_code),
                         FakeRecording::attempt_marker(attempt, instance + 1)});
  }
  ContextId forward_without_attempt(std::int32_t frame, std::int32_t compile,
                                    std::uint64_t instance) {
    return fake.context({FakeRecording::compile_marker(frame, compile, instance)});
  }
  ContextId backward_of(std::int32_t frame, std::int32_t compile, std::int32_t attempt,
                        std::uint64_t instance) {
    return fake.context({FakeRecording::backward_marker(frame, compile, attempt, instance)});
  }

  FakeRecording& fake;
};

}  // namespace dynprof
