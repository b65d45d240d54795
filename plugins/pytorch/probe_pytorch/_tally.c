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
 * transform of torch.func. encode(...) returns the same as the JSON of the leaf; its `dtypes` give the text up to
 * the shape in place of the name.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
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

/* Elements in memory: rows of equal length whose beginnings are `stride` elements apart. The length is a multiple of
 * LANES if there are several rows, so that the sums are those of a copy without gaps. */
typedef struct {
    Py_ssize_t rows, stride, length;
} Extent;

/* Sixteen lanes side by side, so that the compiler keeps them in vector registers. */
#define DEFINE_FLOATING(NAME, STORED, WIDE, LOAD)                                                  \
    FOR_EACH_CPU static void NAME(const STORED *data, Extent extent, Tally *found) {               \
        WIDE high[LANES], low[LANES];                                                              \
        double sum[LANES], squares[LANES];                                                         \
        int nan[LANES];                                                                            \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            high[lane] = (WIDE)-INFINITY;                                                          \
            low[lane] = (WIDE)INFINITY;                                                            \
            sum[lane] = squares[lane] = 0.0;                                                       \
            nan[lane] = 0;                                                                         \
        }                                                                                          \
        Py_ssize_t whole = extent.length - extent.length % LANES;                                  \
        for (Py_ssize_t row = 0; row < extent.rows; row++) {                                       \
            const STORED *start = data + row * extent.stride;                                      \
            for (Py_ssize_t i = 0; i < whole; i += LANES) {                                        \
                for (int lane = 0; lane < LANES; lane++) {                                         \
                    WIDE value = LOAD(start[i + lane]);                                            \
                    high[lane] = value > high[lane] ? value : high[lane];                          \
                    low[lane] = value < low[lane] ? value : low[lane];                             \
                    nan[lane] |= value != value;                                                   \
                    sum[lane] += (double)value;                                                    \
                    squares[lane] += (double)value * (double)value;                                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        for (Py_ssize_t i = whole; i < extent.length; i++) {                                       \
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
    FOR_EACH_CPU static void NAME(const STORED *data, Extent extent, WholeTally *found) {          \
        STORED high = data[0], low = data[0];                                                      \
        double sum[LANES] = {0.0}, squares[LANES] = {0.0};                                         \
        Py_ssize_t whole = extent.length - extent.length % LANES;                                  \
        for (Py_ssize_t row = 0; row < extent.rows; row++) {                                       \
            const STORED *start = data + row * extent.stride;                                      \
            for (Py_ssize_t i = 0; i < extent.length; i++) {                                       \
                high = start[i] > high ? start[i] : high;                                          \
                low = start[i] < low ? start[i] : low;                                             \
            }                                                                                      \
            for (Py_ssize_t i = 0; i < whole; i += LANES) {                                        \
                for (int lane = 0; lane < LANES; lane++) {                                         \
                    double value = (double)start[i + lane];                                        \
                    sum[lane] += value;                                                            \
                    squares[lane] += value * value;                                                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        for (Py_ssize_t i = whole; i < extent.length; i++) {                                       \
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
static double scaled_norm(const double *data, Extent extent, double scale) {
    double squares = 0.0;
    for (Py_ssize_t row = 0; row < extent.rows; row++) {
        for (Py_ssize_t i = 0; i < extent.length; i++) {
            double value = data[row * extent.stride + i] / scale;
            squares += value * value;
        }
    }
    return scale * sqrt(squares);
}

/* The statistics of an array: whole numbers have exact extremes in `whole`, others in `max` and `min`. */
typedef struct {
    int is_whole;
    WholeTally whole;
    double max, min, mean, norm;
} Statistics;

/* Measure the elements at `data`; return 0, or -1 with an exception for an unknown code. */
static int tally(void *data, Extent extent, long code, Statistics *found) {
    Tally floating;
    double count = (double)extent.rows * (double)extent.length;
    found->is_whole = code >= 4;
    Py_BEGIN_ALLOW_THREADS
    switch (code) {
    case 0: tally_float(data, extent, &floating); break;
    case 1: tally_double(data, extent, &floating); break;
    case 2: tally_half(data, extent, &floating); break;
    case 3: tally_bfloat16(data, extent, &floating); break;
    case 4: tally_int64(data, extent, &found->whole); break;
    case 5: tally_int32(data, extent, &found->whole); break;
    case 6: tally_int16(data, extent, &found->whole); break;
    case 7: tally_int8(data, extent, &found->whole); break;
    case 8: tally_uint8(data, extent, &found->whole); break;
    default: found->is_whole = -1;
    }
    Py_END_ALLOW_THREADS
    if (found->is_whole < 0) {
        PyErr_SetString(PyExc_ValueError, "no element type has this code");
        return -1;
    }
    if (found->is_whole) {
        found->mean = found->whole.sum / count;
        found->norm = sqrt(found->whole.squares);
        return 0;
    }
    if (floating.nan) {
        found->max = found->min = found->mean = found->norm = NAN;
        return 0;
    }
    found->max = floating.max, found->min = floating.min, found->mean = floating.sum / count;
    found->norm = sqrt(floating.squares);
    double largest = fmax(fabs(floating.max), fabs(floating.min));
    if (code == 1 && isfinite(largest) && largest > 0.0 && (isinf(found->norm) || largest < 1e-150))
        found->norm = scaled_norm(data, extent, largest);
    return 0;
}

/* Return statistics as a tuple (max, min, mean, norm). */
static PyObject *tuple_of(const Statistics *found) {
    if (found->is_whole)
        return Py_BuildValue("(LLdd)", found->whole.max, found->whole.min, found->mean, found->norm);
    return Py_BuildValue("(dddd)", found->max, found->min, found->mean, found->norm);
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
    Extent extent = {1, count, count};
    Statistics found;
    return tally(data, extent, code, &found) < 0 ? NULL : tuple_of(&found);
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

/* Find out where the elements of a tensor are; return 1, 0 if they cannot be measured there, -1 with an exception. */
static int locate(PyObject *tensor, PyObject *shape, Extent *extent) {
    Py_ssize_t sizes[MAX_DIMENSIONS], strides[MAX_DIMENSIONS], numel = 1;
    Py_ssize_t count = read_sizes(shape, sizes);
    if (count <= 0) return 0;
    for (Py_ssize_t i = 0; i < count; i++) numel *= sizes[i];
    if (!numel) return 0;
    PyObject *stride = PyObject_CallMethodNoArgs(tensor, names[STRIDE]);
    if (stride == NULL) return -1;
    Py_ssize_t stride_count = read_sizes(stride, strides);
    Py_DECREF(stride);
    if (stride_count != count) return 0;
    int has_rows = count == 2 && strides[1] == 1 && strides[0] >= sizes[1] && sizes[1] % LANES == 0;
    *extent = has_rows ? (Extent){sizes[0], strides[0], sizes[1]} : (Extent){1, numel, numel};
    return has_rows || are_dense(sizes, strides, count);
}

/* Return 1 if the memory of a tensor is allocated, 0 if it was freed, -1 with an exception. */
static int is_allocated(PyObject *tensor) {
    PyObject *storage = PyObject_CallMethodNoArgs(tensor, names[UNTYPED_STORAGE]);
    if (storage == NULL) return -1;
    Py_ssize_t size = call_for_size(storage, NBYTES);
    Py_DECREF(storage);
    return size < 0 ? -1 : size > 0;
}

/* Return 1 for a tensor in host memory of the given layout, outside of transforms; 0 if not, -1 with an exception. */
static int is_ordinary(PyObject *tensor, PyObject *strided, PyObject *is_transformed) {
    PyObject *layout = PyObject_GetAttr(tensor, names[LAYOUT]);
    if (layout == NULL) return -1;
    Py_DECREF(layout); /* layouts live as long as torch */
    int result = layout == strided ? attribute_is_true(tensor, IS_CPU) : 0;
    if (result <= 0) return result;
    result = attribute_is_true(tensor, IS_NESTED);
    if (result) return result < 0 ? -1 : 0;
    PyObject *transformed = PyObject_CallOneArg(is_transformed, tensor);
    if (transformed == NULL) return -1;
    Py_DECREF(transformed);
    if (transformed != Py_False) return 0;
    PyObject *negated = PyObject_CallMethodNoArgs(tensor, names[IS_NEG]);
    if (negated == NULL) return -1;
    Py_DECREF(negated);
    return negated == Py_False;
}

/* The first values of a leaf: the name of the dtype (borrowed), the shape (owned), and so on. */
typedef struct {
    PyObject *label, *shape;
    int requires_grad;
    Statistics statistics;
} Description;

/* Describe an ordinary tensor; return 1, 0 for any other tensor, or -1 with an exception. */
static int describe_into(PyObject *const *arguments, Py_ssize_t given, Description *found) {
    if (given != 4 || !PyDict_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "expected a tensor, a dict, a layout and a function");
        return -1;
    }
    PyObject *tensor = arguments[0];
    PyObject *dtype = PyObject_GetAttr(tensor, names[DTYPE]);
    if (dtype == NULL) return -1;
    PyObject *entry = PyDict_GetItemWithError(arguments[1], dtype); /* borrowed: (label, code) */
    Py_DECREF(dtype);
    if (entry == NULL) return PyErr_Occurred() ? -1 : 0;
    int result = is_ordinary(tensor, arguments[2], arguments[3]);
    if (result <= 0) return result;
    PyObject *shape = PyObject_GetAttr(tensor, names[SHAPE]);
    if (shape == NULL) return -1;
    Extent extent;
    if ((result = locate(tensor, shape, &extent)) <= 0) goto done;
    result = -1;
    Py_ssize_t offset = call_for_size(tensor, STORAGE_OFFSET);
    if (offset < 0) goto done;
    if (offset && (result = is_allocated(tensor)) <= 0) goto done; /* else freed memory is at address 0 */
    result = -1;
    PyObject *address = PyObject_CallMethodNoArgs(tensor, names[DATA_PTR]);
    if (address == NULL) goto done;
    void *data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (data == NULL) {
        result = PyErr_Occurred() ? -1 : 0;
        goto done;
    }
    if (tally(data, extent, PyLong_AsLong(PyTuple_GET_ITEM(entry, 1)), &found->statistics) < 0) goto done;
    found->requires_grad = attribute_is_true(tensor, REQUIRES_GRAD);
    if (found->requires_grad < 0) goto done;
    found->label = PyTuple_GET_ITEM(entry, 0);
    found->shape = shape;
    return 1;
done:
    Py_DECREF(shape);
    return result;
}

static PyObject *describe(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    Description found;
    int result = describe_into(arguments, given, &found);
    if (result < 0) return NULL;
    if (!result) Py_RETURN_NONE;
    PyObject *sizes = PySequence_List(found.shape);
    PyObject *four = tuple_of(&found.statistics);
    Py_DECREF(found.shape);
    PyObject *grad = found.requires_grad ? Py_True : Py_False;
    PyObject *tuple = sizes && four ? PyTuple_Pack(4, found.label, sizes, grad, four) : NULL;
    Py_XDECREF(sizes);
    Py_XDECREF(four);
    return tuple;
}

/* A text of limited length that is being written. */
typedef struct {
    char text[768];
    size_t length;
} Line;

static void add_text(Line *line, const char *text) {
    size_t length = strlen(text);
    if (length > sizeof line->text - 1 - line->length) length = sizeof line->text - 1 - line->length;
    memcpy(line->text + line->length, text, length);
    line->length += length;
}

static void add_whole(Line *line, long long value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", value);
    add_text(line, digits);
}

/* Add a number as Python's json writes it; return 0, or -1 with an exception. */
static int add_number(Line *line, double value) {
    if (!isfinite(value)) {
        add_text(line, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
        return 0;
    }
    char *digits = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (digits == NULL) return -1;
    add_text(line, digits);
    PyMem_Free(digits);
    return 0;
}

static PyObject *encode(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    Description found;
    int result = describe_into(arguments, given, &found);
    if (result < 0) return NULL;
    if (!result) Py_RETURN_NONE;
    Line line;
    line.length = 0;
    const char *label = PyUnicode_AsUTF8(found.label);
    const Statistics *four = &found.statistics;
    if (label == NULL) goto failed;
    add_text(&line, label);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(found.shape); i++) {
        add_text(&line, i ? ", " : "[");
        add_whole(&line, PyLong_AsLongLong(PyTuple_GET_ITEM(found.shape, i)));
    }
    add_text(&line, "], \"Max\": ");
    if (four->is_whole)
        add_whole(&line, four->whole.max);
    else if (add_number(&line, four->max) < 0)
        goto failed;
    add_text(&line, ", \"Min\": ");
    if (four->is_whole)
        add_whole(&line, four->whole.min);
    else if (add_number(&line, four->min) < 0)
        goto failed;
    add_text(&line, ", \"Mean\": ");
    if (add_number(&line, four->mean) < 0) goto failed;
    add_text(&line, ", \"Norm\": ");
    if (add_number(&line, four->norm) < 0) goto failed;
    add_text(&line, found.requires_grad ? ", \"requires_grad\": true}" : ", \"requires_grad\": false}");
    Py_DECREF(found.shape);
    return PyUnicode_FromStringAndSize(line.text, (Py_ssize_t)line.length);
failed:
    Py_DECREF(found.shape);
    return NULL;
}

static PyMethodDef methods[] = {
    {"measure", (PyCFunction)(void (*)(void))measure, METH_FASTCALL,
     "measure(address, count, code) -> (max, min, mean, norm)"},
    {"describe", (PyCFunction)(void (*)(void))describe, METH_FASTCALL,
     "describe(tensor, dtypes, strided, is_transformed) -> (dtype name, shape, requires_grad, statistics) or None"},
    {"encode", (PyCFunction)(void (*)(void))encode, METH_FASTCALL,
     "encode(tensor, dtypes, strided, is_transformed) -> the leaf as JSON, or None"},
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
