#include "user/inject/pending_stub.h"

#include <cpuid.h>
#include <fmt/format.h>

#include <cstring>

namespace dynprof {
namespace {

// x87, SSE, AVX and AVX-512: what a function may change without restoring it.
constexpr std::uint64_t kSavedState = 0xe7;
constexpr std::uint32_t kSavedStateRoom = 3072;  // from 1024 in the page of data to its end

}  // namespace
}  // namespace dynprof

// D is the offset of a field in PendingData, as the assertions in pending_stub.h have it.
asm(R"(
  .pushsection .rodata.dynprof_pending_stub, "a", @progbits
  .set D_BASE, 8
  .set D_STATE, 16
  .set D_CANCEL, 20
  .set D_PROCESS, 24
  .set D_COPIED, 28
  .set D_ADD, 32
  .set D_DLOPEN, 40
  .set D_DLSYM, 48
  .set D_DLERROR, 56
  .set D_MUNMAP, 64
  .set D_SAVE_THREAD, 72
  .set D_RESTORE_THREAD, 80
  .set D_STACK, 88
  .set D_INTERPRETER, 96
  .set D_FUNCTION, 104
  .set D_LIBRARY, 128
  .set D_ERROR, 768
  .set D_SEEN, 1008
  .set D_GONE, 1012
  .set D_LEFT, 1016
  .set D_XSAVE, 1024
  .set MAPPING, 0x10000
  .set DATA, 0x1000
  .set RED_ZONE, 128
  .hidden dynprof_stub_entry, dynprof_stub_page, dynprof_stub_data
  .globl dynprof_stub_entry, dynprof_stub_page, dynprof_stub_data

# What functions may change, but for rbp and r12 to r15, which nothing here changes.
.macro SAVE_REGISTERS
  lea -RED_ZONE-8(%rsp), %rsp  # room for the address to go on at
  pushfq
  push %rax
  push %rcx
  push %rdx
  push %rsi
  push %rdi
  push %r8
  push %r9
  push %r10
  push %r11
  push %rbx
.endm
  .set SAVED_ADDRESS, 11 * 8
.macro RESTORE_REGISTERS
  pop %rbx
  pop %r11
  pop %r10
  pop %r9
  pop %r8
  pop %rdi
  pop %rsi
  pop %rdx
  pop %rcx
  pop %rax
  popfq
.endm

# Entered with any registers, and the address to go on at in the base of GS.
  .balign 16
dynprof_stub_entry:
  SAVE_REGISTERS
  mov $0x1004, %edi            # ARCH_GET_GS
  lea SAVED_ADDRESS(%rsp), %rsi
  mov $158, %eax               # arch_prctl
  syscall
  mov $0x1001, %edi            # ARCH_SET_GS
  xor %esi, %esi
  mov $158, %eax
  syscall
  mov dynprof_stub_data+D_BASE(%rip), %rdi
  mov $MAPPING, %esi
  mov $3, %edx                 # PROT_READ | PROT_WRITE
  mov $0x100021, %r10d         # MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
  mov $-1, %r8
  xor %r9d, %r9d
  mov $9, %eax                 # mmap
  syscall
  cmp dynprof_stub_data+D_BASE(%rip), %rax
  jne 1f
  mov %rax, %rdi
  lea dynprof_stub_page(%rip), %rsi
  mov $dynprof_stub_data-dynprof_stub_page, %ecx
  rep movsb
  mov dynprof_stub_data+D_BASE(%rip), %rdi
  add $DATA, %rdi
  lea dynprof_stub_data(%rip), %rsi
  mov dynprof_stub_data+D_COPIED(%rip), %ecx
  rep movsb
  mov dynprof_stub_data+D_BASE(%rip), %rdi
  mov $0x1000, %esi
  mov $5, %edx                 # PROT_READ | PROT_EXEC
  mov $10, %eax                # mprotect
  syscall
  test %eax, %eax
  jnz 2f
  jmp *dynprof_stub_data+D_BASE(%rip)
2:
  mov dynprof_stub_data+D_BASE(%rip), %rdi
  mov $MAPPING, %esi
  mov $11, %eax                # munmap
  syscall
1:
  RESTORE_REGISTERS
  ret $RED_ZONE

# At the beginning of the mapping.
  .balign 16
dynprof_stub_page:
  lea dynprof_stub_page+DATA(%rip), %rbx
  mov %rsp, D_STACK(%rbx)
  lea dynprof_stub_page+MAPPING(%rip), %rsp
  movl $1, D_STATE(%rbx)
  mov $0xe7, %eax
  xor %edx, %edx
  xsave64 D_XSAVE(%rbx)
  lea 3f(%rip), %rdi
  mov %rbx, %rsi
  mov D_INTERPRETER(%rbx), %rax
  test %rax, %rax
  jz 11f
  mov %rsi, %rdx
  mov %rdi, %rsi
  mov %rax, %rdi
  xor %ecx, %ecx               # not the main thread alone
11:
  call *D_ADD(%rbx)
  mov $2, %ecx
  mov $3, %edx
  test %eax, %eax
  cmovnz %edx, %ecx
  mov $1, %eax
  lock cmpxchg %ecx, D_STATE(%rbx)
  mov $0xe7, %eax
  xor %edx, %edx
  xrstor64 D_XSAVE(%rbx)
  mov D_STACK(%rbx), %rsp
  RESTORE_REGISTERS
  movl $1, dynprof_stub_page+DATA+D_LEFT(%rip)
  ret $RED_ZONE

# int call(struct PendingData*), at a safe point, with the GIL held. This memory may be removed once the thread that added the
# call is out of it, and it is known that the padding is free. The main thread added it: if it makes the call, it is out.
3:
  push %rbx
  push %rbp
  push %r12
  push %r13
  push %r14
  mov %rdi, %rbx
  mov $39, %eax                # getpid
  syscall
  cmp %eax, D_PROCESS(%rbx)
  jne 7f
  mov $186, %eax               # gettid
  syscall
  lea D_SEEN(%rbx), %r13       # what is waited for
  xor %r14d, %r14d
  cmp %eax, D_PROCESS(%rbx)
  je 12f
  lea D_GONE(%rbx), %r13
  inc %r14d                    # another thread than the main one
12:
  mov $4, %eax
  xchg %eax, D_STATE(%rbx)
  cmpl $0, D_CANCEL(%rbx)
  jne 6f
  call *D_SAVE_THREAD(%rbx)    # the loader has a lock of its own
  mov %rax, %r12
  lea D_LIBRARY(%rbx), %rdi
  mov $0x1002, %esi            # RTLD_NOW | RTLD_NODELETE
  call *D_DLOPEN(%rbx)
  test %rax, %rax
  jz 4f
  mov %rax, %rdi
  lea D_FUNCTION(%rbx), %rsi
  call *D_DLSYM(%rbx)
  test %rax, %rax
  jz 4f
  call *%rax
  movl $5, D_STATE(%rbx)
  # Were this memory removed before it was seen, nothing would tell that the padding is free. Who made the
  # call may have ended, so it is waited for a little, without the GIL.
  mov $1000, %ebp
5:
  cmpl $0, (%r13)
  jne 5f
  lea 10f(%rip), %rdi
  xor %esi, %esi
  mov $35, %eax                # nanosleep
  syscall
  dec %ebp
  jnz 5b
5:
  mov %r12, %rdi
  call *D_RESTORE_THREAD(%rbx)
  jmp 13f
  .balign 8
10:
  .quad 0, 100000
4:
  call *D_DLERROR(%rbx)
  test %rax, %rax
  jz 9f
  xor %ecx, %ecx
8:
  mov (%rax,%rcx), %dl
  test %dl, %dl
  jz 9f
  mov %dl, D_ERROR(%rbx,%rcx)
  inc %ecx
  cmp $239, %ecx
  jb 8b
9:
  mov %r12, %rdi
  call *D_RESTORE_THREAD(%rbx)
  movl $6, D_STATE(%rbx)
  jmp 14f
6:
  movl $7, D_STATE(%rbx)
13:
  test %r14d, %r14d
  jz 7f
  cmpl $0, D_GONE(%rbx)
  jne 7f
14:
  xor %eax, %eax
  pop %r14
  pop %r13
  pop %r12
  pop %rbp
  pop %rbx
  ret
7:
  # munmap() returns to our caller, with our own result: 0.
  lea -DATA(%rbx), %rdi
  mov $MAPPING, %esi
  mov D_MUNMAP(%rbx), %rax
  pop %r14
  pop %r13
  pop %r12
  pop %rbp
  pop %rbx
  jmp *%rax

  .balign 8
dynprof_stub_data:
  .popsection
)");

extern "C" {
extern const std::byte dynprof_stub_entry[];
extern const std::byte dynprof_stub_page[];
extern const std::byte dynprof_stub_data[];
}

namespace dynprof {

std::vector<std::byte> pending_stub(const PendingData& data) {
  std::vector<std::byte> bytes(dynprof_stub_entry, dynprof_stub_data);
  PendingData given = data;
  const std::size_t used = offsetof(PendingData, library) + std::strlen(given.library) + 1;
  given.copied = static_cast<std::uint32_t>(used);
  const auto* begin = reinterpret_cast<const std::byte*>(&given);
  bytes.insert(bytes.end(), begin, begin + used);
  return bytes;
}

Result<void> check_saved_state() {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & bit_OSXSAVE) == 0)
    return error("this CPU has no XSAVE, with which a thread's registers are saved");
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  const std::uint64_t enabled = (static_cast<std::uint64_t>(high) << 32 | low) & kSavedState;
  for (std::uint32_t part = 2; part < 8; ++part) {
    if ((enabled >> part & 1) == 0 || !__get_cpuid_count(0xd, part, &eax, &ebx, &ecx, &edx))
      continue;
    if (ebx > kSavedStateRoom || eax > kSavedStateRoom - ebx)
      return error(fmt::format("this CPU saves a thread's registers in {} bytes", ebx + eax));
  }
  return {};
}

}  // namespace dynprof
