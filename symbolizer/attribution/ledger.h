// One list of compiles from all that saw them: samples (T and F, through the tracker), edges (E) and
// torch's own history. Each compile has one row per attempt, whoever saw it.
#pragma once

#include <cstdint>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/exact_compiles.h"
#include "symbolizer/attribution/torch_history.h"
#include "symbolizer/recording/reader.h"

namespace dynprof {

// What a sample was for; one per sample, in the recording's order.
struct Answer {
  CompileIndex compile = kNoCompile;
  Phase phase = Phase::kRuntime;
  Origin origin = Origin::kNone;
};

// Where edges bound a compile, its samples are that compile's: `compiles` gets a row for each that
// the edges show, and those the samples made of the same ones go. Samples that could not be placed are in
// a compile if the edges of their thread say so.
void merge_exact(const Recording& recording, const Spans& spans, const ExactCompiles& exact,
                 std::vector<Compile>& compiles, std::vector<Answer>& answers);

// Gives each compile the row of torch's history that is about it, and adds those seen nowhere else.
void merge_history(const Recording& recording, const TorchHistory& history,
                   std::vector<Compile>& compiles);

// Orders them by when they began or were first seen, counts repeats and samples, and completes the
// functions of backwards.
void order_compiles(std::vector<Compile>& compiles, std::vector<Answer>& answers);

}  // namespace dynprof
