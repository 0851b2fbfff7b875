#include "user/cli/gpu_arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "user/cli/usage_error.h"

namespace dynprof {

void add_gpu_options(CLI::App& verb, GpuTexts& texts) {
  verb.add_option("--gpu", texts.mode,
                  "GPU work: auto (default), on (loads the library into the processes), off")
      ->type_name("MODE");
  verb.add_option("--gpu-ranks", texts.ranks,
                  "with --gpu on, only load it into these ranks (RANK): 0,3-5 (default all)")
      ->type_name("LIST");
  verb.add_flag("--all-launch-stacks", texts.all_launch_stacks,
                "read all frames' code objects at each GPU launch; slows launches down");
  verb.add_flag("--sampled-launch-stacks", texts.sampled_launch_stacks,
                "the stack of one GPU launch per ms and thread, where the library is loaded; costs "
                "launches less");
}

Result<void> finish_gpu_options(const GpuTexts& texts, SessionOptions& session) {
  if (texts.mode == "on")
    session.gpu.mode = GpuMode::kOn;
  else if (texts.mode == "off")
    session.gpu.mode = GpuMode::kOff;
  else if (texts.mode != "auto")
    return usage_error(fmt::format("--gpu {}: no such mode", texts.mode), "--gpu auto, on or off");
  if (session.passive && session.gpu.mode == GpuMode::kOn)
    return usage_error("--gpu on needs probes in the target, which --passive does not set",
                       "leave out one of the two");
  const auto ranks = RankSet::parse(texts.ranks);
  if (!ranks)
    return usage_error(fmt::format("'{}' is not a list of ranks", texts.ranks),
                       "for example --gpu-ranks 0,3-5, or --gpu-ranks all");
  session.gpu.ranks = *ranks;
  if (texts.all_launch_stacks && texts.sampled_launch_stacks)
    return usage_error("--all-launch-stacks and --sampled-launch-stacks exclude each other",
                       "leave out one of the two");
  if (texts.all_launch_stacks) session.gpu.launch_stacks = LaunchStackMode::kEachRead;
  if (texts.sampled_launch_stacks) session.gpu.launch_stacks = LaunchStackMode::kSampled;
  if (!ranks->all() && session.gpu.mode != GpuMode::kOn)
    return usage_error("--gpu-ranks is for --gpu on", "--gpu on --gpu-ranks 0");
  return {};
}

}  // namespace dynprof
