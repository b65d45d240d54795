/* Maximum, minimum, mean and L2 norm of an array in one pass, accumulated in double.
 *
 * measure(address, count, code) -> (max, min, mean, norm); code is the element type (the table in
 * statistics.py). Floating: NaN among the elements makes all four NaN. Whole numbers: max and min are
 * exact ints. The caller vouches that `count` elements can be read at `address`.
 *
 * describe(tensor, dtypes, strided, is_transformed) returns what a leaf holds of an ordinary tensor in host
 * memory: the name of its dtype, its shape, requires_grad and the four statistics. `dtypes` maps each dtype to
 * its name and code. The result is None for every other tensor: on another device, of another layout or
 * dtype, without dimensions or elements, with gaps between its elements, with freed memory, or inside a
 * transform of torch.func.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

#define LANES 16

typedef struct {
    double max, min, sum, squares;
    int nan;
} Tally;

static inline float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float load_bfloat16(uint16_t bits) { return from_bits((uint32_t)bits << 16); }

/* IEEE half to single: shift exponent and fraction into place, scale subnormals by a subtraction. */
static inline float load_half(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t rest = bits & 0x7fffu;
    uint32_t normal = (rest << 13) + (112u << 23);
    uint32_t special = (rest << 13) | 0x7f800000u;
    float tiny = from_bits((rest << 13) + (113u << 23)) - from_bits(113u << 23);
    uint32_t tiny_bits;
    memcpy(&tiny_bits, &tiny, sizeof tiny_bits);
    uint32_t found = rest >= 0x7c00u ? special : rest < 0x0400u ? tiny_bits : normal;
    return from_bits(found | sign);
}

#define SAME(value) (value)

/* Sixteen lanes side by side, so that the compiler keeps them in vector registers. */
#define DEFINE_FLOATING(NAME, STORED, WIDE, LOAD)                                                  \
    FOR_EACH_CPU static void NAME(const STORED *data, Py_ssize_t count, Tally *found) {            \
        WIDE high[LANES], low[LANES];                                                              \
        double sum[LANES], squares[LANES];                                                         \
        int nan[LANES];                                                                            \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            high[lane] = (WIDE)-INFINITY;                                                          \
            low[lane] = (WIDE)INFINITY;                                                            \
            sum[lane] = squares[lane] = 0.0;                                                       \
            nan[lane] = 0;                                                                         \
        }                                                                                          \
        Py_ssize_t whole = count - count % LANES;                                                  \
        for (Py_ssize_t i = 0; i < whole; i += LANES) {                                            \
            for (int lane = 0; lane < LANES; lane++) {                                             \
                WIDE value = LOAD(data[i + lane]);                                                 \
                high[lane] = value > high[lane] ? value : high[lane];                              \
                low[lane] = value < low[lane] ? value : low[lane];                                 \
                nan[lane] |= value != value;                                                       \
                sum[lane] += (double)value;                                                        \
                squares[lane] += (double)value * (double)value;                                    \
            }                                                                                      \
        }                                                                                          \
        for (Py_ssize_t i = whole; i < count; i++) {                                               \
            int lane = (int)(i - whole);                                                           \
            WIDE value = LOAD(data[i]);                                                            \
            high[lane] = value > high[lane] ? value : high[lane];                                  \
            low[lane] = value < low[lane] ? value : low[lane];                                     \
            nan[lane] |= value != value;                                                           \
            sum[lane] += (double)value;                                                            \
            squares[lane] += (double)value * (double)value;                                        \
        }                                                                                          \
        found->max = high[0], found->min = low[0], found->sum = found->squares = 0.0;              \
        found->nan = 0;                                                                            \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            if (high[lane] > found->max) found->max = high[lane];                                  \
            if (low[lane] < found->min) found->min = low[lane];                                    \
            found->sum += sum[lane];                                                               \
            found->squares += squares[lane];                                                       \
            found->nan |= nan[lane];                                                               \
        }                                                                                          \
    }

DEFINE_FLOATING(tally_float, float, float, SAME)
DEFINE_FLOATING(tally_double, double, double, SAME)
DEFINE_FLOATING(tally_half, uint16_t, float, load_half)
DEFINE_FLOATING(tally_bfloat16, uint16_t, float, load_bfloat16)

typedef struct {
    long long max, min;
    double sum, squares;
} WholeTally;

#define DEFINE_WHOLE(NAME, STORED)                                                                 \
    FOR_EACH_CPU static void NAME(const STORED *data, Py_ssize_t count, WholeTally *found) {       \
        STORED high = data[0], low = data[0];                                                      \
        double sum[LANES] = {0.0}, squares[LANES] = {0.0};                                         \
        for (Py_ssize_t i = 0; i < count; i++) {                                                   \
            high = data[i] > high ? data[i] : high;                                                \
            low = data[i] < low ? data[i] : low;                                                   \
        }                                                                                          \
        Py_ssize_t whole = count - count % LANES;                                                  \
        for (Py_ssize_t i = 0; i < whole; i += LANES) {                                            \
            for (int lane = 0; lane < LANES; lane++) {                                             \
                double value = (double)data[i + lane];                                             \
                sum[lane] += value;                                                                \
                squares[lane] += value * value;                                                    \
            }                                                                                      \
        }                                                                                          \
        for (Py_ssize_t i = whole; i < count; i++) {                                               \
            sum[0] += (double)data[i];                                                             \
            squares[0] += (double)data[i] * (double)data[i];                                       \
        }                                                                                          \
        found->max = (long long)high, found->min = (long long)low;                                 \
        found->sum = found->squares = 0.0;                                                         \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            found->sum += sum[lane];                                                               \
            found->squares += squares[lane];                                                       \
        }                                                                                          \
    }

DEFINE_WHOLE(tally_int64, int64_t)
DEFINE_WHOLE(tally_int32, int32_t)
DEFINE_WHOLE(tally_int16, int16_t)
DEFINE_WHOLE(tally_int8, int8_t)
DEFINE_WHOLE(tally_uint8, uint8_t)

/* Compute a norm whose squares leave the range of double again, with the elements scaled. */
static double scaled_norm(const double *data, Py_ssize_t count, double scale) {
    double squares = 0.0;
    for (Py_ssize_t i = 0; i < count; i++) {
        double value = data[i] / scale;
        squares += value * value;
    }
    return scale * sqrt(squares);
}

/* Return (max, min, mean, norm) of `count` elements at `data`; NULL with an exception for an unknown code. */
static PyObject *tally(void *data, Py_ssize_t count, long code) {
    Tally floating;
    WholeTally whole;
    int is_whole = code >= 4;
    Py_BEGIN_ALLOW_THREADS
    switch (code) {
    case 0: tally_float(data, count, &floating); break;
    case 1: tally_double(data, count, &floating); break;
    case 2: tally_half(data, count, &floating); break;
    case 3: tally_bfloat16(data, count, &floating); break;
    case 4: tally_int64(data, count, &whole); break;
    case 5: tally_int32(data, count, &whole); break;
    case 6: tally_int16(data, count, &whole); break;
    case 7: tally_int8(data, count, &whole); break;
    case 8: tally_uint8(data, count, &whole); break;
    default: is_whole = -1;
    }
    Py_END_ALLOW_THREADS
    if (is_whole < 0) {
        PyErr_SetString(PyExc_ValueError, "no element type has this code");
        return NULL;
    }
    if (is_whole)
        return Py_BuildValue("(LLdd)", whole.max, whole.min, whole.sum / (double)count, sqrt(whole.squares));
    if (floating.nan) return Py_BuildValue("(dddd)", NAN, NAN, NAN, NAN);
    double norm = sqrt(floating.squares);
    double largest = fmax(fabs(floating.max), fabs(floating.min));
    if (code == 1 && isfinite(largest) && largest > 0.0 && (isinf(norm) || largest < 1e-150))
        norm = scaled_norm(data, count, largest);
    double mean = floating.sum / (double)count;
    return Py_BuildValue("(dddd)", floating.max, floating.min, mean, norm);
}

static PyObject *measure(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given != 3) {
        PyErr_SetString(PyExc_TypeError, "measure takes an address, a count and a code");
        return NULL;
    }
    void *data = PyLong_AsVoidPtr(arguments[0]);
    Py_ssize_t count = PyLong_AsSsize_t(arguments[1]);
    long code = PyLong_AsLong(arguments[2]);
    if (PyErr_Occurred()) return NULL;
    if (data == NULL || count <= 0) {
        PyErr_SetString(PyExc_ValueError, "there are no elements to measure");
        return NULL;
    }
    return tally(data, count, code);
}

/* -- tensors ------------------------------------------------------------------------------------ */

#define MAX_DIMENSIONS 16

enum { DTYPE, IS_CPU, LAYOUT, IS_NESTED, SHAPE, REQUIRES_GRAD, IS_NEG, STRIDE, DATA_PTR, STORAGE_OFFSET,
       UNTYPED_STORAGE, NBYTES, NAME_COUNT };
static const char *const NAME_TEXTS[NAME_COUNT] = {
    "dtype", "is_cpu", "layout", "is_nested", "shape", "requires_grad", "is_neg", "stride", "data_ptr",
    "storage_offset", "untyped_storage", "nbytes",
};
static PyObject *names[NAME_COUNT];

/* Return the truth of an attribute; -1 with an exception. */
static int attribute_is_true(PyObject *object, int name) {
    PyObject *value = PyObject_GetAttr(object, names[name]);
    if (value == NULL) return -1;
    int result = PyObject_IsTrue(value);
    Py_DECREF(value);
    return result;
}

/* Call a method without arguments and return its result as a number; -1 with an exception. */
static Py_ssize_t call_for_size(PyObject *object, int name) {
    PyObject *value = PyObject_CallMethodNoArgs(object, names[name]);
    if (value == NULL) return -1;
    Py_ssize_t result = PyLong_AsSsize_t(value);
    Py_DECREF(value);
    return result;
}

/* Copy a tuple of up to MAX_DIMENSIONS numbers; return their count, or -1 if it holds anything else. */
static Py_ssize_t read_sizes(PyObject *tuple, Py_ssize_t *sizes) {
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > MAX_DIMENSIONS) return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        if (!PyLong_CheckExact(item)) return -1;
        sizes[i] = PyLong_AsSsize_t(item);
    }
    return count;
}

/* Return 1 if elements of these sizes and strides are in memory without gaps, in any order of dimensions. */
static int are_dense(Py_ssize_t *sizes, Py_ssize_t *strides, Py_ssize_t count) {
    Py_ssize_t expected = 1;
    for (Py_ssize_t done = 0; done < count; done++) { /* take the dimensions from the smallest stride on */
        Py_ssize_t next = done;
        for (Py_ssize_t i = done; i < count; i++)
            if (strides[i] < strides[next] || (strides[i] == strides[next] && sizes[i] < sizes[next])) next = i;
        Py_ssize_t size = sizes[next], stride = strides[next];
        sizes[next] = sizes[done], strides[next] = strides[done];
        if (size == 1) continue;
        if (stride != expected) return 0;
        expected *= size;
    }
    return 1;
}

/* Return the number of elements if they can be measured where they are; 0 if not, -1 with an exception. */
static Py_ssize_t measurable(PyObject *tensor, PyObject *shape) {
    Py_ssize_t sizes[MAX_DIMENSIONS], strides[MAX_DIMENSIONS], numel = 1;
    Py_ssize_t count = read_sizes(shape, sizes);
    if (count <= 0) return 0;
    for (Py_ssize_t i = 0; i < count; i++) numel *= sizes[i];
    if (!numel) return 0;
    PyObject *stride = PyObject_CallMethodNoArgs(tensor, names[STRIDE]);
    if (stride == NULL) return -1;
    Py_ssize_t stride_count = read_sizes(stride, strides);
    Py_DECREF(stride);
    return stride_count == count && are_dense(sizes, strides, count) ? numel : 0;
}

/* Return 1 if the memory of a tensor is allocated, 0 if it was freed, -1 with an exception. */
static int is_allocated(PyObject *tensor) {
    PyObject *storage = PyObject_CallMethodNoArgs(tensor, names[UNTYPED_STORAGE]);
    if (storage == NULL) return -1;
    Py_ssize_t size = call_for_size(storage, NBYTES);
    Py_DECREF(storage);
    return size < 0 ? -1 : size > 0;
}

static PyObject *describe(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given != 4 || !PyDict_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "describe takes a tensor, a dict, a layout and a function");
        return NULL;
    }
    PyObject *tensor = arguments[0], *result = NULL, *shape = NULL, *four = NULL, *sizes = NULL, *grad = NULL;
    PyObject *dtype = PyObject_GetAttr(tensor, names[DTYPE]);
    if (dtype == NULL) return NULL;
    PyObject *entry = PyDict_GetItemWithError(arguments[1], dtype); /* borrowed: (name, code) */
    Py_DECREF(dtype);
    if (entry == NULL) {
        if (PyErr_Occurred()) return NULL;
        Py_RETURN_NONE;
    }
    PyObject *layout = PyObject_GetAttr(tensor, names[LAYOUT]);
    if (layout == NULL) return NULL;
    Py_DECREF(layout); /* layouts live as long as torch */
    int is_plain = layout == arguments[2] ? attribute_is_true(tensor, IS_CPU) : 0;
    if (is_plain > 0) {
        int is_nested = attribute_is_true(tensor, IS_NESTED);
        is_plain = is_nested < 0 ? -1 : !is_nested;
    }
    if (is_plain > 0) {
        PyObject *transformed = PyObject_CallOneArg(arguments[3], tensor);
        if (transformed == NULL) return NULL;
        is_plain = transformed == Py_False;
        Py_DECREF(transformed);
    }
    if (is_plain > 0) {
        PyObject *negated = PyObject_CallMethodNoArgs(tensor, names[IS_NEG]);
        if (negated == NULL) return NULL;
        is_plain = negated == Py_False;
        Py_DECREF(negated);
    }
    if (is_plain <= 0) {
        if (is_plain < 0) return NULL;
        Py_RETURN_NONE;
    }
    shape = PyObject_GetAttr(tensor, names[SHAPE]);
    if (shape == NULL) return NULL;
    Py_ssize_t count = measurable(tensor, shape);
    if (count <= 0) goto general;
    Py_ssize_t offset = call_for_size(tensor, STORAGE_OFFSET);
    if (offset < 0) goto done;
    if (offset) { /* the address of freed memory is then not 0 */
        int allocated = is_allocated(tensor);
        if (allocated <= 0) goto general;
    }
    PyObject *address = PyObject_CallMethodNoArgs(tensor, names[DATA_PTR]);
    if (address == NULL) goto done;
    void *data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (data == NULL) goto general;
    long code = PyLong_AsLong(PyTuple_GET_ITEM(entry, 1));
    four = tally(data, count, code);
    if (four == NULL) goto done;
    sizes = PySequence_List(shape);
    grad = PyObject_GetAttr(tensor, names[REQUIRES_GRAD]);
    if (sizes != NULL && grad != NULL)
        result = PyTuple_Pack(4, PyTuple_GET_ITEM(entry, 0), sizes, grad, four);
    goto done;
general:
    if (!PyErr_Occurred()) result = Py_NewRef(Py_None);
done:
    Py_XDECREF(shape);
    Py_XDECREF(four);
    Py_XDECREF(sizes);
    Py_XDECREF(grad);
    return result;
}

static PyMethodDef methods[] = {
    {"measure", (PyCFunction)(void (*)(void))measure, METH_FASTCALL,
     "measure(address, count, code) -> (max, min, mean, norm)"},
    {"describe", (PyCFunction)(void (*)(void))describe, METH_FASTCALL,
     "describe(tensor, dtypes, strided, is_transformed) -> (dtype name, shape, requires_grad, statistics) or None"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_tally", "Statistics of an array in one pass.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__tally(void) {
    for (int i = 0; i < NAME_COUNT; i++)
        if (names[i] == NULL && (names[i] = PyUnicode_InternFromString(NAME_TEXTS[i])) == NULL) return NULL;
    return PyModule_Create(&definition);
}
