// All sums of a pair of tensors in one pass, accumulated in double.
//
// measure(target, golden, target_code, golden_code, ulp_limit, threads[, totals]) -> tuple; codes are places
// in CODES of compiled.py, the fields of the tuple those of Tally in tally.py. Both buffers hold the same
// number of elements, at least one. ulp_limit < 0: no distances in units of the last place; else both codes
// are the same and floating. totals: the eight sums of the elements before these.
// measure_many([(target, golden, target_code, golden_code, ulp_limit), ...], threads) -> [tuple, ...]
//
// The order in which numbers are added is part of the contract, so that blocked.py, which adds in the
// same order, gives the same bits, and so does every machine: blocks of BLOCK elements; element i of
// a block goes to lane i % LANES; the lanes of a block are folded in halves; blocks are added one by
// one. No multiply-add is fused (-ffp-contract=off). Threads take whole blocks.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
#include <deque>
#include <new>
#include <thread>
#include <vector>

#include "_elements.h"
#include "_guard.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

namespace {

constexpr Py_ssize_t BLOCK = 8192;
constexpr int PIECE = 1024;             // elements decoded at a time: both sides stay in the first cache
constexpr Py_ssize_t SHARE = 1 << 21;   // elements that are worth a thread

enum Sum { RELATIVE, TARGET_SQUARES, GOLDEN_SQUARES, SQUARES, DOT, TARGET, GOLDEN, ULP, SUMS };

struct Found {
    Side target, golden;
    double max_absolute = 0, max_relative = 0, max_ulp = 0;
    int64_t below_one = 0, below_five = 0, over_limit = 0, apart = 0;
    bool equal = true;
};

// ---- what is not finite ---------------------------------------------------------------------------

INLINE bool note(double value, Side &side) {
    if (value - value == 0) {
        side.max = larger(value, side.max);
        side.min = smaller(value, side.min);
        return true;
    }
    if (value == value) side.infinite++;
    else side.nan++;
    return false;
}

// Count what is not finite and zero it on both sides; `zeroed` gets a mark for each such place.
void settle(double *target, double *golden, int count, Found &found, bool *zeroed, Side &target_side, Side &golden_side) {
    for (int i = 0; i < count; i++) {
        bool both = note(target[i], target_side) & note(golden[i], golden_side);
        zeroed[i] = !both;
        if (both) continue;
        bool nans = target[i] != target[i] && golden[i] != golden[i];
        found.apart += !nans && target[i] != golden[i];
        target[i] = golden[i] = 0;
    }
}

// ---- sums -----------------------------------------------------------------------------------------

typedef double Lanes[SUMS][LANES];

// The piece behind the one at work, fetched while that is summed: memory waits otherwise at every piece.
struct Ahead {
    const char *target, *golden;
    int target_step, golden_step;  // bytes of a vector
    INLINE_MEMBER void next() {
        __builtin_prefetch(target);
        __builtin_prefetch(golden);
        target += target_step;
        golden += golden_step;
    }
};

INLINE void add(const double *target, const double *golden, int count, Lanes &lanes, Found &found, Ahead ahead) {
    Doubles max_absolute = {}, max_relative = {};
    Longs below_one = {}, below_five = {};
    for (int lane = 0; lane < LANES; lane += WIDTH) {
        Doubles sum[ULP];
        for (int i = 0; i < ULP; i++) sum[i] = load<Doubles>(&lanes[i][lane]);
        for (int i = lane; i < count; i += LANES) {
            Doubles ours = load<Doubles>(target + i), theirs = load<Doubles>(golden + i);
            Doubles difference = ours - theirs, absolute = magnitude(difference);
            Longs differs = absolute != 0;
            Doubles relative = (Doubles)((Longs)(absolute / magnitude(theirs)) & differs);
            max_absolute = larger(absolute, max_absolute);
            max_relative = larger(relative, max_relative);
            below_one -= relative < 1e-3;
            below_five -= relative < 5e-3;
            sum[RELATIVE] += relative;
            sum[TARGET_SQUARES] += ours * ours;
            sum[GOLDEN_SQUARES] += theirs * theirs;
            sum[SQUARES] += difference * difference;
            sum[DOT] += ours * theirs;
            sum[TARGET] += ours;
            sum[GOLDEN] += theirs;
            ahead.next();
        }
        for (int i = 0; i < ULP; i++) store(&lanes[i][lane], sum[i]);
    }
    found.max_absolute = larger(across_max(max_absolute), found.max_absolute);
    found.max_relative = larger(across_max(max_relative), found.max_relative);
    found.below_one += total(below_one);
    found.below_five += total(below_five);
}

// The same for a piece whose bits agree: nothing differs.
INLINE void add_equal(const double *both, int count, Lanes &lanes, Found &found, Ahead ahead) {
    for (int lane = 0; lane < LANES; lane += WIDTH) {
        Doubles squares = load<Doubles>(&lanes[TARGET_SQUARES][lane]), plain = load<Doubles>(&lanes[TARGET][lane]);
        Doubles theirs = load<Doubles>(&lanes[GOLDEN_SQUARES][lane]), dot = load<Doubles>(&lanes[DOT][lane]);
        Doubles golden = load<Doubles>(&lanes[GOLDEN][lane]);
        for (int i = lane; i < count; i += LANES) {
            Doubles value = load<Doubles>(both + i), square = value * value;
            squares += square;
            theirs += square;
            dot += square;
            plain += value;
            golden += value;
            ahead.next();
        }
        store(&lanes[TARGET_SQUARES][lane], squares);
        store(&lanes[GOLDEN_SQUARES][lane], theirs);
        store(&lanes[DOT][lane], dot);
        store(&lanes[TARGET][lane], plain);
        store(&lanes[GOLDEN][lane], golden);
    }
    found.below_one += count;
    found.below_five += count;
}

// ---- distances in units of the last place ---------------------------------------------------------

// The place of a number among all numbers of its dtype, from its bits; both zeros have place 0.
template <typename S>
INLINE S place(S bits, S least) {
    S sign = bits >> (sizeof(bits[0]) * 8 - 1);  // all ones where negative
    return ((bits & ~least) ^ sign) - sign;
}

INLINE Doubles apart(const uint16_t *target, const uint16_t *golden) {
    typedef int16_t Shorts __attribute__((vector_size(16)));
    SignedWords ours = __builtin_convertvector(place(load<Shorts>(target), Shorts{} + INT16_MIN), SignedWords);
    SignedWords theirs = __builtin_convertvector(place(load<Shorts>(golden), Shorts{} + INT16_MIN), SignedWords);
    SignedWords distance = ours - theirs;
    distance = distance < 0 ? -distance : distance;
    return __builtin_convertvector(distance, Doubles);
}

INLINE Doubles apart(const float *target, const float *golden) {
    Longs ours = __builtin_convertvector(place(load<SignedWords>(target), SignedWords{} + INT32_MIN), Longs);
    Longs theirs = __builtin_convertvector(place(load<SignedWords>(golden), SignedWords{} + INT32_MIN), Longs);
    return magnitude(__builtin_convertvector(ours - theirs, Doubles));
}

INLINE Doubles apart(const double *target, const double *golden) {
    Longs ours = place(load<Longs>(target), Longs{} + INT64_MIN),
          theirs = place(load<Longs>(golden), Longs{} + INT64_MIN);
    UnsignedLongs up = (UnsignedLongs)ours - (UnsignedLongs)theirs;
    UnsignedLongs distance = ours > theirs ? up : -up;
    return __builtin_convertvector(distance, Doubles);
}

template <typename T>
INLINE void add_ulp(const void *target, const void *golden, Py_ssize_t start, int count, const bool *zeroed,
                    double limit, Lanes &lanes, Found &found) {
    const T *ours = (const T *)target + start, *theirs = (const T *)golden + start;
    Doubles largest = {};
    Longs over = {};
    for (int i = 0; i < count; i += WIDTH) {
        T few[2][WIDTH] = {};
        const T *first = ours + i, *second = theirs + i;
        if (count - i < WIDTH) {
            std::memcpy(few[0], first, sizeof(T) * (count - i));
            std::memcpy(few[1], second, sizeof(T) * (count - i));
            first = few[0], second = few[1];
        }
        Doubles distance = apart(first, second);
        if (zeroed)
            for (int lane = 0; lane < WIDTH && i + lane < count; lane++)
                if (zeroed[i + lane]) distance[lane] = 0;
        largest = larger(distance, largest);
        over -= distance > limit;
        double *sum = &lanes[ULP][i % LANES];
        store(sum, load<Doubles>(sum) + distance);
    }
    found.max_ulp = larger(across_max(largest), found.max_ulp);
    found.over_limit += total(over);
}

// ---- the pass -------------------------------------------------------------------------------------

struct Job {
    const char *target, *golden;
    int target_code, golden_code;
    Py_ssize_t count;
    double ulp_limit;
};

// Blocks from `first` to `last`; the sums of each go to `sums`, SUMS a block.
FOR_EACH_CPU void pass(const Job *job, Py_ssize_t first, Py_ssize_t last, double *sums, Found *result) {
    alignas(64) double target[PIECE], golden[PIECE];
    alignas(64) Lanes lanes;
    bool zeroed[PIECE];
    Found found = *result;
    bool alike = job->target_code == job->golden_code;
    int size = SIZES[job->target_code], golden_size = SIZES[job->golden_code];
    for (Py_ssize_t block = first; block < last; block++) {
        std::memset(lanes, 0, sizeof lanes);
        Py_ssize_t start = block * BLOCK, stop = start + BLOCK < job->count ? start + BLOCK : job->count;
        for (; start < stop; start += PIECE) {
            int count = (int)(stop - start < PIECE ? stop - start : PIECE);
            int padded = (count + LANES - 1) / LANES * LANES;
            Side ours, theirs;
            bool finite = decode(job->target_code, job->target, start, count, target, ours);
            finite &= decode(job->golden_code, job->golden, start, count, golden, theirs);
            bool same = alike && !std::memcmp(job->target + start * size, job->golden + start * size, size * count);
            if (!finite) {
                ours = theirs = Side();
                settle(target, golden, count, found, zeroed, ours, theirs);
            }
            found.target.max = larger(ours.max, found.target.max);
            found.target.min = smaller(ours.min, found.target.min);
            found.target.nan += ours.nan;
            found.target.infinite += ours.infinite;
            found.golden.max = larger(theirs.max, found.golden.max);
            found.golden.min = smaller(theirs.min, found.golden.min);
            found.golden.nan += theirs.nan;
            found.golden.infinite += theirs.infinite;
            Ahead ahead = {job->target + (start + PIECE) * size, job->golden + (start + PIECE) * golden_size,
                           WIDTH * size, WIDTH * golden_size};
            if (same) {
                add_equal(target, padded, lanes, found, ahead);
            } else {
                found.equal = false;
                add(target, golden, padded, lanes, found, ahead);
                if (job->ulp_limit >= 0) {
                    const bool *marks = finite ? nullptr : zeroed;
                    if (size == 2)
                        add_ulp<uint16_t>(job->target, job->golden, start, count, marks, job->ulp_limit, lanes, found);
                    else if (size == 4)
                        add_ulp<float>(job->target, job->golden, start, count, marks, job->ulp_limit, lanes, found);
                    else
                        add_ulp<double>(job->target, job->golden, start, count, marks, job->ulp_limit, lanes, found);
                }
            }
            found.below_one -= padded - count;
            found.below_five -= padded - count;
        }
        for (int sum = 0; sum < SUMS; sum++) {
            for (int half = LANES / 2; half; half /= 2)
                for (int lane = 0; lane < half; lane++) lanes[sum][lane] += lanes[sum][lane + half];
            sums[(block - first) * SUMS + sum] = lanes[sum][0];
        }
    }
    *result = found;
}

void join(Side &into, const Side &other) {
    into.max = larger(other.max, into.max);
    into.min = smaller(other.min, into.min);
    into.nan += other.nan;
    into.infinite += other.infinite;
}

void join(Found &into, const Found &other) {
    join(into.target, other.target);
    join(into.golden, other.golden);
    into.max_absolute = larger(other.max_absolute, into.max_absolute);
    into.max_relative = larger(other.max_relative, into.max_relative);
    into.max_ulp = larger(other.max_ulp, into.max_ulp);
    into.below_one += other.below_one;
    into.below_five += other.below_five;
    into.over_limit += other.over_limit;
    into.apart += other.apart;
    into.equal &= other.equal;
}

// Run the job on up to `threads` threads; `totals` gets the sums over all blocks, added in their order.
void run(const Job &job, int threads, Found &found, double (&totals)[SUMS]) {
    Py_ssize_t blocks = (job.count + BLOCK - 1) / BLOCK;
    Py_ssize_t wanted = job.count / SHARE;
    Py_ssize_t workers = wanted < threads ? wanted : threads;
    if (workers < 1) workers = 1;
    std::vector<double> sums((size_t)blocks * SUMS);
    std::vector<Found> parts((size_t)workers);
    std::vector<std::thread> others;
    for (Py_ssize_t worker = workers - 1; worker >= 0; worker--) {
        Py_ssize_t first = blocks * worker / workers, last = blocks * (worker + 1) / workers;
        double *own = sums.data() + first * SUMS;
        Found *part = &parts[worker];
        if (worker) {
            try {
                others.emplace_back(pass, &job, first, last, own, part);
                continue;
            } catch (const std::exception &) {
                // no more threads are to be had: this one does it
            }
        }
        pass(&job, first, last, own, part);
    }
    for (std::thread &other : others) other.join();
    found = parts[0];
    for (size_t part = 1; part < parts.size(); part++) join(found, parts[part]);
    for (Py_ssize_t block = 0; block < blocks; block++)
        for (int sum = 0; sum < SUMS; sum++) totals[sum] += sums[block * SUMS + sum];
}

// ---- called from Python ---------------------------------------------------------------------------

// The memory of an object, held until the end of the scope.
struct Buffer {
    Py_buffer view = {};

    Buffer() = default;
    Buffer(const Buffer &) = delete;
    ~Buffer() { PyBuffer_Release(&view); }  // of what was never taken: nothing
};

const int FIELDS = 17 + SUMS;  // of a tally

// One pair as it was asked for, and what was found.
struct Request {
    Buffer target, golden;
    Job job = {};
    double totals[SUMS] = {};
    Found found;

    // Take over the two buffers; false, with an exception set, where they do not go together.
    bool check() {
        bool known = job.target_code >= 0 && job.target_code < CODES && job.golden_code >= 0 && job.golden_code < CODES;
        bool measures_ulp = job.ulp_limit >= 0;
        if (!known || (measures_ulp && (job.target_code != job.golden_code || job.target_code > BFLOAT16))) {
            PyErr_SetString(PyExc_ValueError, "no such element types");
            return false;
        }
        const Py_buffer &first = target.view, &second = golden.view;
        int ours = SIZES[job.target_code], theirs = SIZES[job.golden_code];
        if (first.len == 0 || first.len % ours || second.len % theirs || first.len / ours != second.len / theirs) {
            PyErr_SetString(PyExc_ValueError, "both sides must hold the same number of elements, at least one");
            return false;
        }
        job.target = (const char *)first.buf;
        job.golden = (const char *)second.buf;
        job.count = first.len / ours;
        return true;
    }

    // The fields of a tally in the order of tally.py; extrema: -0.0 as 0.0.
    void write(double *fields) const {
        const double values[FIELDS] = {
            (double)job.count, (double)found.equal, found.target.max + 0.0, found.target.min + 0.0,
            found.golden.max + 0.0, found.golden.min + 0.0, (double)found.target.nan, (double)found.target.infinite,
            (double)found.golden.nan, (double)found.golden.infinite, (double)found.apart, found.max_absolute,
            found.max_relative, found.max_ulp, (double)found.below_one, (double)found.below_five,
            (double)found.over_limit, totals[RELATIVE], totals[TARGET_SQUARES], totals[GOLDEN_SQUARES],
            totals[SQUARES], totals[DOT], totals[TARGET], totals[GOLDEN], totals[ULP]};
        std::memcpy(fields, values, sizeof values);
    }
};

// Measure all requests on up to `threads` threads, each on one of them unless it is the only one; false where memory
// ran out.
bool run_all(std::deque<Request> &requests, int threads) {
    std::atomic<size_t> next{0};
    std::atomic<bool> well{true};
    int own = requests.size() == 1 ? threads : 1;
    auto work = [&] {
        for (size_t i = next++; i < requests.size(); i = next++) {
            try {
                run(requests[i].job, own, requests[i].found, requests[i].totals);
            } catch (const std::bad_alloc &) {
                well = false;
            }
        }
    };
    std::vector<std::thread> others;
    for (int other = 1; other < threads && (size_t)other < requests.size(); other++) {
        try {
            others.emplace_back(work);
        } catch (const std::exception &) {
            break;  // no more threads are to be had: these do it
        }
    }
    work();
    for (std::thread &other : others) other.join();
    return well;
}

PyObject *measure(PyObject *, PyObject *args) {
    PyObject *items;
    int threads;
    Buffer table;
    if (!PyArg_ParseTuple(args, "O!iw*:measure", &PyList_Type, &items, &threads, &table.view)) return nullptr;
    std::deque<Request> requests;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        if (!PyTuple_Check(item)) return PyErr_Format(PyExc_TypeError, "a request must be a tuple");
        Request &request = requests.emplace_back();
        Job &job = request.job;
        double(&totals)[SUMS] = request.totals;
        if (!PyArg_ParseTuple(item, "y*y*iid|(dddddddd):measure", &request.target.view, &request.golden.view,
                              &job.target_code, &job.golden_code, &job.ulp_limit, &totals[0], &totals[1], &totals[2],
                              &totals[3], &totals[4], &totals[5], &totals[6], &totals[7]) ||
            !request.check())
            return nullptr;
    }
    if ((size_t)table.view.len != requests.size() * FIELDS * sizeof(double))
        return PyErr_Format(PyExc_ValueError, "the table must have %d numbers for each request", FIELDS);
    bool well;
    Py_BEGIN_ALLOW_THREADS
    well = run_all(requests, threads);
    Py_END_ALLOW_THREADS
    if (!well) return PyErr_NoMemory();
    double *fields = (double *)table.view.buf;
    for (const Request &request : requests) {
        request.write(fields);
        fields += FIELDS;
    }
    Py_RETURN_NONE;
}

PyMethodDef METHODS[] = {{"measure", measure, METH_VARARGS, nullptr},
                         {"watch", guard::watch, METH_O, nullptr},
                         {"unwatch", guard::unwatch, METH_O, nullptr},
                         {"torn", guard::torn, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernel", nullptr, -1, METHODS, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&MODULE); }
