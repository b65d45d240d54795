// A guard for mapped files: where one is cut off, or its disk fails, reading it goes on with zeros and is noted.
//
// The system answers a read behind the end of a mapped file with SIGBUS, which ends the process. The handler
// here looks the address up among the mappings that it watches, notes that mapping as torn, and puts zeros in
// the place of all its pages from there on. Whoever computed with them asks for the note, and throws away what
// it computed. A fault at any other address goes to whoever handled the signal before, or ends the process.
//
// watch(buffer) -> number, or -1 where the buffer cannot be watched; unwatch(number); torn(number) -> bool

#pragma once

#include <Python.h>

#if defined(__unix__) || defined(__APPLE__)
#define PROBE_GUARDS 1
#include <cerrno>
#include <csignal>
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <atomic>
#include <cstdint>

namespace {
namespace guard {

#ifdef PROBE_GUARDS

constexpr int RANGES = 8192;

// One mapping. `begin` is 0 while nobody has the place, and 1 while it is filled in.
struct Range {
    std::atomic<uintptr_t> begin, end;
    std::atomic<bool> torn;
};

Range ranges[RANGES];
std::atomic<int> used{0};  // no place from here on was ever taken
std::atomic<bool> passing{false};
struct sigaction previous;
uintptr_t page_size = 0;
static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a handler of signals cannot wait for a lock");

// Put zeros in the place of what lies from the page of `address` on; false where nobody watches that.
bool replace(uintptr_t address) {
    int count = used;
    for (int i = 0; i < count; i++) {
        uintptr_t begin = ranges[i].begin, end = ranges[i].end;
        if (begin <= 1 || address < begin || address >= end) continue;
        ranges[i].torn = true;  // first: another thread may meet the zeros at once
        uintptr_t page = address & ~(page_size - 1);
        uintptr_t size = (end - page + page_size - 1) & ~(page_size - 1);
        void *zeros = mmap((void *)page, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        return zeros != MAP_FAILED;
    }
    return false;
}

// Leave the signal to whoever handled it before us, or to the system, which ends the process.
void pass_on(int number, siginfo_t *info, void *context) {
    bool is_fault = info->si_code > 0;
    bool is_nested = passing.exchange(true);  // a handler that raises it again would come back here for ever
    bool has_function = (previous.sa_flags & SA_SIGINFO) ||
                        (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
    if (!is_nested && has_function) {
        if (previous.sa_flags & SA_SIGINFO) previous.sa_sigaction(number, info, context);
        else previous.sa_handler(number);
        passing = false;
        return;
    }
    if (!is_nested && !is_fault && previous.sa_handler == SIG_IGN) {
        passing = false;
        return;
    }
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    sigaction(number, &usual, nullptr);
    if (!is_fault) raise(number);  // a fault comes again by itself
}

void handle(int number, siginfo_t *info, void *context) {
    int error = errno;
    bool is_of_file = info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR;
    if (!is_of_file || !replace((uintptr_t)info->si_addr)) pass_on(number, info, context);
    errno = error;
}

// Be the one who handles the signal; somebody may have taken our place since we were last asked.
bool install() {
    struct sigaction now;
    if (sigaction(SIGBUS, nullptr, &now)) return false;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handle) return true;
    struct sigaction own = {};
    own.sa_sigaction = handle;
    own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&own.sa_mask);
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    previous = now;
    return !sigaction(SIGBUS, &own, nullptr);
}

int add(uintptr_t begin, uintptr_t size) {
    if (begin <= 1 || !size || !install()) return -1;
    static std::atomic<int> last{0};
    for (int tried = 0, i = last; tried < RANGES; tried++, i = (i + 1) % RANGES) {
        uintptr_t nobody = 0;
        if (!ranges[i].begin.compare_exchange_strong(nobody, 1)) continue;
        ranges[i].end = begin + size;
        ranges[i].torn = false;
        ranges[i].begin = begin;
        for (int count = used; count <= i && !used.compare_exchange_weak(count, i + 1);) {
        }
        last = i;
        return i;
    }
    return -1;
}

void drop(int number) { ranges[number].begin = 0; }
bool is_torn(int number) { return ranges[number].torn; }

#else

constexpr int RANGES = 0;
int add(uintptr_t, uintptr_t) { return -1; }
void drop(int) {}
bool is_torn(int) { return false; }

#endif

// ---- called from Python ---------------------------------------------------------------------------

PyObject *watch(PyObject *, PyObject *memory) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(memory, &buffer, PyBUF_SIMPLE)) return nullptr;
    int number = add((uintptr_t)buffer.buf, (uintptr_t)buffer.len);
    PyBuffer_Release(&buffer);
    return PyLong_FromLong(number);
}

int number_of(PyObject *number) {
    long found = PyLong_AsLong(number);
    if (PyErr_Occurred()) return -1;
    if (found >= 0 && found < RANGES) return (int)found;
    PyErr_SetString(PyExc_ValueError, "nothing is watched under this number");
    return -1;
}

PyObject *unwatch(PyObject *, PyObject *number) {
    int found = number_of(number);
    if (found < 0) return nullptr;
    drop(found);
    Py_RETURN_NONE;
}

PyObject *torn(PyObject *, PyObject *number) {
    int found = number_of(number);
    return found < 0 ? nullptr : PyBool_FromLong(is_torn(found));
}

}  // namespace guard
}  // namespace
