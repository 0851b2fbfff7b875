// The one list of the kinds of chunks. From it come the numbers and names of the kinds (format.h),
// `Tables` (model.h), what a writer takes (writer.h), what it writes and in which order (writer.cpp),
// and what a reader fills in (table_builder.cpp); a unit test compares docs/reference/recording-format.md with
// it. To add a kind of event: its row type, a row of DYNPROF_LISTS, its RowFormat (row_formats.h) and
// a paragraph of the document. Numbers are append-only.
#pragma once

// Tables: other rows refer to their rows by id. X(kind, number, name, row type, member of Tables).
// In the order in which rows refer to each other, which is the order of a file.
#define DYNPROF_TABLES(X)                              \
  X(kStrings, 2, "strings", std::string_view, strings) \
  X(kBlobs, 3, "line tables", std::string_view, blobs) \
  X(kCodes, 4, "code objects", Code, codes)            \
  X(kFrames, 5, "frames", Frame, frames)               \
  X(kStacks, 6, "stacks", StackNode, stacks)           \
  X(kContexts, 7, "contexts", Context, contexts)       \
  X(kThreads, 9, "threads", Thread, threads)

// Lists: no other row refers to their rows.
// X(kind, number, name, row type, member of Tables, function of RecordingWriter). After the tables in
// a file; sorted as RowFormat says when read.
#define DYNPROF_LISTS(X)                                                                           \
  X(kProcesses, 8, "processes", Process, processes, process)                                       \
  X(kNativeNames, 13, "native names", NativeName, native_names, native_name)                       \
  X(kEdges, 14, "edges", SpanEdge, edges, edge)                                                    \
  X(kFacts, 15, "facts", Fact, facts, fact)                                                        \
  X(kGpuLaunches, 16, "GPU launches", GpuLaunch, gpu_launches, gpu_launch)                         \
  X(kGpuRecords, 17, "GPU records", GpuRecord, gpu_records, gpu_record)                            \
  X(kWaits, 18, "waits", Wait, waits, wait)                                                        \
  X(kProcessLife, 19, "process lives", ProcessLife, lives, process_life)                           \
  X(kObjectFiles, 20, "mapped files", ObjectFile, object_files, object_file)                       \
  X(kSourcePlaces, 21, "source places", SourcePlaces, source_places, source_places)                \
  X(kGraphBreaks, 22, "graph breaks", GraphBreak, graph_breaks, graph_break)                       \
  X(kLineSamples, 23, "line samples", LineSample, line_samples, line_sample)                       \
  X(kLockSamples, 24, "lock samples", LockSample, lock_samples, lock_sample)                       \
  X(kMemoryPeaks, 25, "memory peaks", MemoryPeak, memory_peaks, memory_peak)                       \
  X(kModuleSamples, 26, "module samples", ModuleSample, module_samples, module_sample)             \
  X(kRegionRuns, 27, "region runs", RegionRuns, region_runs, region_runs)                          \
  X(kCompileProgress, 28, "compile progress", CompileProgress, compile_progress, compile_progress) \
  X(kMemorySamples, 29, "memory samples", MemorySample, memory_samples, memory_sample)             \
  X(kAnnotations, 30, "annotations", Annotation, annotations, annotation)                          \
  X(kTritonSamples, 31, "Triton samples", TritonSample, triton_samples, triton_sample)

// Chunks that are not rows of Tables. X(kind, number, name).
#define DYNPROF_OTHER_CHUNKS(X) \
  X(kMeta, 1, "meta")           \
  X(kSamples, 10, "samples")    \
  X(kTrailer, 11, "trailer")    \
  X(kEnd, 12, "end mark")
