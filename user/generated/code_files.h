// The files of code objects: what Dynamo made of a function and its resume functions, each as a listing and
// as a .pyc file, and the user's function as a .pyc file and as source.
#pragma once

#include <map>
#include <string>

#include "user/generated/code_listing.h"
#include "user/generated/collector.h"
#include "user/generated/compiled_codes.h"
#include "user/generated/python_objects.h"
#include "user/generated/target_file.h"

namespace dynprof {

// "forward (/tmp/model.py:9)", on one line whatever the names are.
std::string describe_code(const RemoteCode& code);
// "compile 0/0", "of an unknown compile"
std::string shown_id(const std::string& trace_id);

class CodeObjectFiles {
 public:
  CodeObjectFiles(PythonObjects& python, TargetFiles& files, Collector& collector,
                  const CompiledCodes& codes)
      : python_(python), files_(files), collector_(collector), codes_(codes) {}

  void add(const CompiledCode& code);
  void add(const ResumeFunction& resume);

 private:
  void add_listing(GeneratedFile file, const std::string& about, const CodeText& text,
                   const std::string& hint);
  void add_pyc(std::uint64_t code, GeneratedFile file, const std::string& hint);
  void add_source(const CompiledCode& code, GeneratedFile file);
  const std::string& source_of(const std::string& path);

  PythonObjects& python_;
  TargetFiles& files_;
  Collector& collector_;
  const CompiledCodes& codes_;
  std::map<std::string, std::string> sources_;  // by path; "": not readable
  std::size_t source_bytes_ = 0;
};

// The lines of `text` from `first` to `last`, counted from 1; "" where it has no line `first`.
std::string lines_of(const std::string& text, std::int32_t first, std::int32_t last);

}  // namespace dynprof
