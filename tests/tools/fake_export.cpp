// Writes the outputs made from an invented recording into a directory, for tests of what reads
// them: fake_export DIRECTORY. Forward and backward compiles, an attempt, a repeat, nasty names,
// recursion, native and kernel frames.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "symbolizer/export/compiles_json.h"
#include "symbolizer/export/folded.h"
#include "symbolizer/export/pstats.h"
#include "symbolizer/profile/analysis.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_torch.h"

namespace dynprof {
namespace {

void invent(FakeRecording& fake) {
  FakeTorch torch(fake);
  fake.process(Process{.pid = 100, .comm = fake.string("python3")});
  ThreadId main = fake.thread(100, 100), other = fake.thread(100, 101, "pt_autograd_0");
  CodeId forward = fake.code("/home/me/model.py", "Block.forward", 7);
  FrameId recursive = fake.python("/home/me/train.py", "walk", 50, 52);
  FrameId alloc = fake.native("_PyObject_Malloc", "/usr/bin/python3.11");
  FrameId nowhere = fake.native("", "/usr/lib/libtorch_cpu.so", 0x1234);

  fake.sample(main, torch.running(), 0, 0, 40);
  fake.sample(main, fake.stack({alloc}, torch.running()), 0, 0, 7);
  fake.sample(main, fake.stack({recursive, recursive, recursive}, torch.running()), 0, 0, 5);
  fake.sample(main, torch.before_attempt(), torch.forward_without_attempt(0, 0, 0x1000), 0, 2);
  fake.sample(main, torch.tracing(), torch.forward(0, 0, 0, 0x1000, forward), 0, 30);
  fake.sample(main, torch.lowering(), torch.forward(0, 0, 1, 0x1000, forward), 0, 50);
  fake.sample(main, torch.guarding(), torch.forward(0, 0, 1, 0x1000, forward), 0, 6);
  fake.sample(main, fake.stack({fake.kernel("do_syscall_64")}, torch.lowering()),
              torch.forward(0, 0, 1, 0x1000, forward), 0, 3);
  fake.sample(other, torch.lowering_backward(), torch.backward_of(0, 0, 1, 0x2000), 0, 20);
  fake.sample(main, fake.stack({nowhere}, torch.running()), 0, 0, 4);
  fake.sample(main, torch.tracing(), torch.forward(0, 0, 0, 0x1000, forward), 0, 9);
  fake.sample(other, 0, 0, kSampleNoPython, 2);

  const std::string nasty[] = {"new\nline",
                               "a\x1b[31mred",
                               "../../etc/passwd",
                               "\"quo'ted\\",
                               std::string(10000, 'x'),
                               "\xed\xb2\x80surrogate",
                               "\xff\xfe not utf-8",
                               "semi;colon",
                               "",
                               "<html>&amp;",
                               "\xe2\x80\xaeoverride"};
  int line = 1;
  for (const std::string& name : nasty) {
    FrameId frame = fake.python(fake.code(Code{.filename = fake.string("/tmp/" + name + ".py"),
                                               .name = fake.string(name),
                                               .qualname = fake.string(name),
                                               .first_line = ++line}));
    fake.sample(main, fake.stack({frame}, torch.tracing()), torch.forward(1, 0, 0, 0x3000));
  }
  for (const std::string& name : nasty) {
    fake.sample(main, fake.stack({fake.native(name, "/lib/" + name)}, torch.running()));
  }
  Code stale{.unreadable = Unreadable::kStale};
  fake.sample(main, fake.stack({fake.python(fake.code(stale))}, torch.running()));
  fake.edit_trailer().counters = {{"samples", fake.sample_count()}, {"ring_full", 3}};
}

bool write(const std::string& path, const std::string& bytes) {
  auto file = OutputFile::create(path);
  if (!file) {
    fmt::print(stderr, "error: {}\n", file.error().what);
    return false;
  }
  (*file)->write(bytes);
  return (*file)->finish().has_value();
}

int run(const std::string& directory) {
  FakeRecording fake;
  invent(fake);
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  bool ok = true;
  auto profile = [&](const std::string& stem, const Profile& of) {
    ok &= write(fmt::format("{}/{}.profile", directory, stem),
                pstats_bytes(of, analysis.functions()));
  };
  profile("session", analysis.session());
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
    profile(attribution.file_stem(i), analysis.of(i));
  }
  ok &= write(directory + "/compiles.json", compiles_json(analysis));
  ok &= write(directory + "/report.txt", render_report(analysis, ReportOptions{.tables = true}));
  auto sink = OutputFile::create(directory + "/session.folded");
  ok = ok && sink && write_folded(analysis, {.compile_root = true}, **sink);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fake_export DIRECTORY\n", stderr);
    return 2;
  }
  return dynprof::run(argv[1]);
}
